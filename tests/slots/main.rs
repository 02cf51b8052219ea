//! Several slots are one server: what a client sees does not depend on how many there are.
//!
//! `alike` puts the same scripts to the original and to 1, 2, 4 and 16 slots. `tubes` is about names and the life
//! of tubes, `watching` about references over slots, `pipelines` about the order of replies, `reserving` about
//! reserves that concern several slots, `ids` about ids, `numbers` about statistics, `topology` about what is
//! refused at start, `route` about the command that shows the map.

#[path = "../support/mod.rs"]
mod support;

mod alike;
mod fleet;
mod ids;
mod numbers;
mod pipelines;
mod reserving;
mod route;
mod topology;
mod tubes;
mod watching;
