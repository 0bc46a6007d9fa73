//! Regression tests: each is the schedule of a bug that was found in use.

mod arming;
mod blocked_database;
mod directories;
mod ends;
mod losses;
mod restarts;
mod resumes;
