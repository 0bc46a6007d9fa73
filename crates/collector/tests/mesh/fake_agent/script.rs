//! Deviations of a simulated agent from a perfect one.

use std::time::Duration;

/// The behaviour of an agent that differs from a perfect one.
#[derive(Clone)]
pub struct Script {
    pub labels: Vec<(String, String)>,
    /// How long its tasks run.
    pub runs_for: Duration,
    /// The file system of its target; agents with equal names share it.
    pub file_system: String,
    pub free_bytes: i64,
    pub host: String,
    pub kernel: String,
    /// May not drop caches.
    pub no_root: bool,
    /// The type of its target's file system.
    pub file_system_type: String,
    /// A wrong nonce for its run directories.
    pub nonce: Option<String>,
    /// Number of files that it removes per cell; reported one by one.
    pub removes: u64,
    /// Answers no survey.
    pub deaf_to_surveys: bool,
    /// Each of its operations fails, although its tasks end well.
    pub only_errors: bool,
    /// Publishes an interval per second while its tasks run, instead of one at their end.
    pub row_per_second: bool,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            labels: Vec::new(),
            runs_for: Duration::from_millis(300),
            file_system: String::from("shared"),
            free_bytes: 1 << 40,
            host: String::from("boot"),
            kernel: String::from("6.1"),
            no_root: false,
            file_system_type: String::from("ext4"),
            nonce: None,
            removes: 0,
            deaf_to_surveys: false,
            only_errors: false,
            row_per_second: false,
        }
    }
}
