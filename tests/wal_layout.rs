//! The layout of a log's job record against a C compiler: offsets of the core's own `dat.h` where the vendored
//! tree is there, else of the same fields declared here.
//!
//! Fails without a C compiler; the package can't be built without one either.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, id};

use trellis::wal::Version;
use trellis::wal::format::offset;

const FIELDS: [(&str, &str, usize); 13] = [
    ("uint64_t", "id", offset::ID),
    ("uint32_t", "pri", offset::PRI),
    ("int64_t", "delay", offset::DELAY),
    ("int64_t", "ttr", offset::TTR),
    ("int32_t", "body_size", offset::BODY_SIZE),
    ("int64_t", "created_at", offset::CREATED_AT),
    ("int64_t", "deadline_at", offset::DEADLINE_AT),
    ("uint32_t", "reserve_ct", offset::RESERVES),
    ("uint32_t", "timeout_ct", offset::TIMEOUTS),
    ("uint32_t", "release_ct", offset::RELEASES),
    ("uint32_t", "bury_ct", offset::BURIES),
    ("uint32_t", "kick_ct", offset::KICKS),
    ("unsigned char", "state", offset::STATE),
];

fn vendored_header() -> Option<PathBuf> {
    let given = env::var_os("BEANSTALKD_C_SRC").map(PathBuf::from);
    let vendor = Path::new(env!("CARGO_MANIFEST_DIR")).join("vendor/beanstalkd-c");
    let below = fs::read_dir(vendor).into_iter().flatten().flatten().map(|entry| entry.path());
    given.into_iter().chain(below).map(|dir| dir.join("dat.h")).find(|header| header.is_file())
}

fn probe(header: Option<&Path>) -> String {
    let declaration = match header {
        Some(header) => format!("#include \"{}\"\n", header.display()),
        None => {
            let fields: String =
                FIELDS.iter().map(|(kind, name, _)| format!("    {kind} {name};\n")).collect();
            format!("#include <stdint.h>\ntypedef struct {{\n{fields}}} Jobrec;\n")
        }
    };
    let prints: String = FIELDS
        .iter()
        .map(|(_, name, _)| format!("    printf(\"%zu \", offsetof(Jobrec, {name}));\n"))
        .collect();
    format!(
        "{declaration}#include <stddef.h>\n#include <stdio.h>\nint main(void) {{\n{prints}    \
         printf(\"%zu %zu %zu\", sizeof(Jobrec), sizeof(int), sizeof(size_t));\n    return 0;\n}}\n"
    )
}

fn offsets_by_c(header: Option<&Path>) -> Vec<usize> {
    let dir = env::temp_dir().join(format!("trellis-layout-{}-{}", id(), header.is_some()));
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("probe.c"), probe(header)).unwrap();
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let built = Command::new(compiler).current_dir(&dir).args(["probe.c", "-o", "probe"]).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let output = Command::new(dir.join("probe")).output().unwrap();
    fs::remove_dir_all(&dir).unwrap();
    String::from_utf8(output.stdout).unwrap().split_whitespace().map(|word| word.parse().unwrap()).collect()
}

#[test]
fn jobrec_is_laid_out_as_c_lays_it_out() {
    let mut expected: Vec<usize> = FIELDS.iter().map(|(_, _, offset)| *offset).collect();
    expected.extend([
        Version::V7.jobrec_bytes(),
        Version::V7.name_length_bytes(),
        Version::V5.name_length_bytes(),
    ]);
    assert_eq!(offsets_by_c(None), expected);
    if let Some(header) = vendored_header() {
        assert_eq!(offsets_by_c(Some(&header)), expected, "{}", header.display());
    }
}
