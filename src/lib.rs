//! Trellis: one logical beanstalkd server made of several processes on one Linux host.

pub mod limits;
#[cfg(test)]
mod scratch;
pub mod topology;
