//! Trellis: one logical beanstalkd server made of several processes on one Linux host.

pub mod limits;
