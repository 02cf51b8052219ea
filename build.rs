//! Builds the C side of Trellis, once per change of it.
//!
//! In order: the vendored source is fetched if it is missing and compared with its MANIFEST; the vendored
//! program becomes `beanstalkd-legacy`, linked into that binary alone; the owner's core becomes a static library
//! of the crate, with bindings made from its one-page header. Never edits the vendored tree, never compiles one
//! that differs from the MANIFEST. Stops with an error that names the thing, the reason and the way out.
//!
//! `ct/run` links the original test suite against the very objects made here: `legacy.objects` and
//! `core.archive` in the build script's output folder list them, one path a line.

use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

const VENDOR: &str = "vendor/beanstalkd-c";
const TREE: &str = "vendor/beanstalkd-c/tree";
const MANIFEST: &str = "vendor/beanstalkd-c/MANIFEST";
const SHIM: &str = "src/core_ffi/shim";

/// What the release's own `vers.sh` says; `version[]` is generated, as the original Makefile does it.
const VERSION: &str = "1.13";

/// The vendored program for Linux, all of it. libsystemd is left out (`HAVE_LIBSYSTEMD` stays undefined): the
/// reference binary takes its sockets from its command line only.
const LEGACY: &[&str] = &[
    "main.c", "conn.c", "file.c", "heap.c", "job.c", "linux.c", "ms.c", "net.c", "primes.c", "prot.c",
    "serv.c", "time.c", "tube.c", "util.c", "walg.c",
];

/// Vendored files that the owner's core compiles as they are.
const CORE_VENDORED: &[&str] = &["heap.c", "ms.c", "primes.c", "tube.c"];

/// Files of ours in the owner's core. `X_unit.c` includes the vendored `X.c` after its renames and adds to it.
const CORE_SHIM: &[&str] = &[
    "clock.c",
    "conn_unit.c",
    "file_unit.c",
    "job_unit.c",
    "lines.c",
    "platform.c",
    "prot_unit.c",
    "serv_unit.c",
    "util_unit.c",
    "wal_io.c",
    "wal_sum.c",
    "walg_unit.c",
];

/// Vendored files that are not in the owner's core, and why.
const CORE_LEFT_OUT: &[(&str, &str)] = &[
    ("main.c", "the owner has its own start"),
    ("net.c", "listening is the supervisor's work"),
    ("time.c", "nanoseconds is ours: it never goes back (clock.c)"),
    ("linux.c", "sockinit, sockwant and socknext are ours (platform.c)"),
    ("darwin.c", "another platform"),
    ("freebsd.c", "another platform"),
    ("sunos.c", "another platform"),
    ("testheap.c", "the original test suite, see ct/"),
    ("testjobs.c", "the original test suite, see ct/"),
    ("testms.c", "the original test suite, see ct/"),
    ("testserv.c", "the original test suite, see ct/"),
    ("testutil.c", "the original test suite, see ct/"),
];

/// What Rust sees of C beside `core_*` and `CORE_*`: the log's record and the numbers shared with stock.
const BOUND_TYPES: &str = "core_.*|Jobrec";
const BOUND_NUMBERS: &str = "CORE_.*|core_.*|Walver|Invalid|Ready|Reserved|Buried|Delayed|Copy|Filesizedef\
    |DEFAULT_FSYNC_MS|JOB_DATA_SIZE_LIMIT_.*|LINE_BUF_SIZE|MAX_TUBE_NAME_LEN|URGENT_THRESHOLD";

fn main() {
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        stop("this target", "Trellis runs on Linux only", "build for a Linux target");
    }
    println!("cargo::rerun-if-changed={MANIFEST}");
    println!("cargo::rerun-if-changed={TREE}");

    fetch_if_missing();
    verify_tree();
    assert_every_file_is_placed();

    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let version = generate_version(&out);
    build_legacy(&out, &version);

    println!("cargo::rerun-if-changed={SHIM}");
    build_core(&out, &version);
    bind_core(&out);
}

// --- the vendored tree ------------------------------------------------------------------------------------

fn fetch_if_missing() {
    if Path::new(TREE).exists() {
        return;
    }
    let fetch = format!("{VENDOR}/fetch");
    match Command::new(&fetch).output() {
        Ok(run) if run.status.success() => {}
        Ok(run) => {
            for line in String::from_utf8_lossy(&run.stderr).lines() {
                println!("cargo::error={line}");
            }
            exit(1)
        }
        Err(e) => {
            stop(&fetch, &format!("cannot run it: {e}"), "it needs bash; see vendor/beanstalkd-c/README.md")
        }
    }
}

/// Compares every file with the MANIFEST, and looks for C files that are not in it.
fn verify_tree() {
    let way_out = format!("never edit the tree; run {VENDOR}/fetch to put it right");
    let listed = manifest();
    for (path, digest) in &listed {
        let path = format!("{VENDOR}/{path}");
        match fs::read(&path) {
            Ok(bytes) if format!("{:x}", Sha256::digest(&bytes)) == *digest => {}
            Ok(_) => stop(&path, "differs from the MANIFEST", &way_out),
            Err(e) => stop(&path, &format!("cannot read it: {e}"), &way_out),
        }
    }
    for path in c_files(Path::new(TREE)) {
        let path = path.strip_prefix(VENDOR).expect("below the vendor folder").to_string_lossy().into_owned();
        if !listed.contains_key(&path) {
            stop(&format!("{VENDOR}/{path}"), "is not in the MANIFEST", &way_out);
        }
    }
}

/// Path below the vendor folder to SHA-256, for the files of the tree (the tarball's own line is `fetch`'s).
fn manifest() -> BTreeMap<String, String> {
    let text = fs::read_to_string(MANIFEST).unwrap_or_else(|e| {
        stop(MANIFEST, &format!("cannot read it: {e}"), "restore it with git checkout");
    });
    text.lines()
        .filter_map(|line| line.split_once("  "))
        .filter(|(_, path)| path.starts_with("tree/"))
        .map(|(digest, path)| (path.to_owned(), digest.to_owned()))
        .collect()
}

/// All `.c` and `.h` files below `dir`.
fn c_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| {
        stop(&dir.to_string_lossy(), &format!("cannot list it: {e}"), "check its permissions");
    });
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(c_files(&path));
        } else if path.extension().is_some_and(|e| e == "c" || e == "h") {
            found.push(path);
        }
    }
    found
}

/// Every `.c` file at the top of the tree is in the owner's core, or is left out for a written reason.
fn assert_every_file_is_placed() {
    let names = |path: PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let vendored: BTreeSet<String> = c_files(Path::new(TREE))
        .into_iter()
        .filter(|path| path.parent() == Some(Path::new(TREE)) && path.extension().is_some_and(|e| e == "c"))
        .filter_map(names)
        .collect();
    let mut placed: Vec<String> = CORE_VENDORED.iter().map(|name| name.to_string()).collect();
    placed.extend(
        CORE_SHIM.iter().filter_map(|name| name.strip_suffix("_unit.c")).map(|stem| format!("{stem}.c")),
    );
    placed.extend(CORE_LEFT_OUT.iter().map(|(name, _why)| name.to_string()));
    placed.sort();
    assert!(placed.iter().eq(vendored.iter()), "build.rs places {placed:?}, the tree has {vendored:?}");
}

// --- the two builds ---------------------------------------------------------------------------------------

/// What both builds of the core have in common, so that comparing them compares nothing else.
fn compiler() -> cc::Build {
    let mut build = cc::Build::new();
    build.flag(format!("-fmacro-prefix-map={TREE}/=")); // messages name their file as stock's do: "net.c:120"
    build.std("gnu17").opt_level(2).debug(true).force_frame_pointer(false).cargo_metadata(false);
    build
}

/// The same for vendored files, whose warnings are not ours to mend.
fn vendored_compiler(names: &[&str], version: &Path) -> cc::Build {
    let mut build = compiler();
    build.warnings(false).include(TREE).file(version);
    build.files(names.iter().map(|name| Path::new(TREE).join(name)));
    build
}

fn generate_version(out: &Path) -> PathBuf {
    let path = out.join("vers.c");
    fs::write(&path, format!("const char version[] = \"{VERSION}\";\n")).expect("OUT_DIR is writable");
    path
}

/// The vendored program as it is. Its objects go to its binary by name, so that nothing of it can reach the
/// library or the other binaries, where the owner's core has the same symbols.
fn build_legacy(out: &Path, version: &Path) {
    let objects = vendored_compiler(LEGACY, version).out_dir(out.join("legacy")).compile_intermediates();
    for object in &objects {
        println!("cargo::rustc-link-arg-bin=beanstalkd-legacy={}", object.display());
    }
    write_list(&out.join("legacy.objects"), &objects);
}

fn build_core(out: &Path, version: &Path) {
    let dir = out.join("core");
    let mut objects = vendored_compiler(CORE_VENDORED, version).out_dir(&dir).compile_intermediates();

    // -isystem keeps the warnings of an included vendored file out of the reach of -Werror.
    let mut shim = compiler();
    shim.warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .include(SHIM)
        .flag("-isystem")
        .flag(TREE);
    shim.files(CORE_SHIM.iter().map(|name| Path::new(SHIM).join(name)));
    objects.extend(shim.out_dir(&dir).compile_intermediates());

    compiler().cargo_metadata(true).out_dir(&dir).objects(&objects).compile("trellis_core");
    write_list(&out.join("core.archive"), &[dir.join("libtrellis_core.a")]);
}

fn write_list(path: &Path, items: &[PathBuf]) {
    let mut text = String::new();
    for item in items {
        text += &format!("{}\n", item.display());
    }
    fs::write(path, text).expect("OUT_DIR is writable");
}

// --- bindings ---------------------------------------------------------------------------------------------

/// Rust's view of `core.h`, and of the record and the numbers in `dat.h` that our reader of the log shares with
/// the core. `dat.h` has no include guard of its own; one of its macros serves as one.
fn bind_core(out: &Path) {
    let header = "#include \"core.h\"\n#ifndef LINE_BUF_SIZE\n#include \"dat.h\"\n#endif\n";
    let bindings = bindgen::Builder::default()
        .header_contents("core_bindings.h", header)
        .clang_args([format!("-I{SHIM}"), format!("-I{TREE}"), "-std=gnu17".to_owned()])
        .clang_args(["-idirafter".to_owned(), compiler_headers()])
        .allowlist_function("core_.*")
        .allowlist_type(BOUND_TYPES)
        .allowlist_var(BOUND_NUMBERS)
        .layout_tests(true)
        .derive_default(true)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .rust_target(bindgen::RustTarget::stable(85, 0).ok().expect("bindgen knows Rust 1.85"))
        .generate();
    let path = out.join("core_bindings.rs");
    match bindings {
        // A libclang newer than bindgen knows makes it leave out fields without a word.
        Ok(bindings) if !bindings.to_string().contains("field: Jobrec::state") => stop(
            "libclang",
            "bindgen cannot read structs with this version",
            "name an older one's folder in LIBCLANG_PATH",
        ),
        Ok(bindings) => bindings.write_to_file(path).expect("OUT_DIR is writable"),
        Err(e) => stop(
            &format!("{SHIM}/core.h"),
            &format!("bindgen: {e}"),
            "mend the header, or script/bootstrap for libclang",
        ),
    }
}

/// Where the C compiler keeps `stddef.h` and the like: libclang comes without any when clang itself is not
/// installed. Searched last, so that libclang's own win where they are there.
fn compiler_headers() -> String {
    let compiler = compiler().get_compiler();
    let answer = compiler.to_command().arg("-print-file-name=include").output();
    answer.map(|run| String::from_utf8_lossy(&run.stdout).trim().to_owned()).unwrap_or_default()
}

fn stop(thing: &str, reason: &str, way_out: &str) -> ! {
    println!("cargo::error={thing}: {reason}. Way out: {way_out}.");
    exit(1)
}
