//! What happens when a process dies, stalls or is flooded: the failure contract, shown on real processes.
//!
//! `owner`, `frontend` and `supervisor` kill each kind of process; `unavailable` is about a slot that stays away;
//! `races` starts two servers on one directory; `flow` floods and stalls; `cancel` lets the end of a wait meet the
//! job that it waited for; `hostile` is the clients nobody wants; `descriptors` runs out of them.

#[path = "../support/mod.rs"]
mod support;

mod cancel;
mod descriptors;
mod flow;
mod frontend;
mod hostile;
mod jobs;
mod owner;
mod races;
mod supervisor;
mod unavailable;

/// Tests of what is still to be built. They run all the same, and one that passes fails until it is taken off.
const NOT_YET: support::not_yet::List = &[(
    "server_of_several_frontends_out_of_descriptors_says_so_in_few_lines",
    "each frontend says it ten times a second; repeated lines are not limited",
)];

fn not_yet(name: &str, test: impl FnOnce()) {
    support::not_yet::run(NOT_YET, name, test);
}

#[test]
fn not_yet_list_is_shown() {
    support::not_yet::show(NOT_YET);
}
