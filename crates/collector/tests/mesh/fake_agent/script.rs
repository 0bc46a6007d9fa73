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
    /// Refuses this number of arms as too late.
    pub late_arms: u32,
    /// Its answer when asked to prepare a task.
    pub prepare_error: Option<(String, String)>,
    /// Limits `prepare_error` to tasks of this mode.
    pub refused_mode: Option<String>,
    /// Ends its tasks with this error.
    pub task_error: String,
    pub starts: Starts,
    /// May not drop caches.
    pub no_root: bool,
    /// The type of its target's file system.
    pub file_system_type: String,
    /// A wrong nonce for its run directories.
    pub nonce: Option<String>,
    /// Number of files that it removes per cell; reported one by one.
    pub removes: u64,
    /// Forgets its tasks without reporting it.
    pub forgets_in_silence: bool,
    /// Answers no survey.
    pub deaf_to_surveys: bool,
    /// Ignores requests to stop.
    pub deaf_to_stops: bool,
    /// Each of its operations fails, although its tasks end well.
    pub only_errors: bool,
    /// Publishes an interval per second while its tasks run, instead of one at their end.
    pub row_per_second: bool,
}

/// How it handles its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Starts {
    #[default]
    Punctually,
    /// Confirms, but never begins.
    Never,
    /// Begins this many microseconds before the instant.
    Early(i64),
    /// Confirms, and starts as if it had been armed for an instant this many microseconds earlier.
    Old(i64),
    /// Answers each arming with the id of another command.
    Astray,
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
            late_arms: 0,
            prepare_error: None,
            refused_mode: None,
            task_error: String::new(),
            starts: Starts::default(),
            no_root: false,
            file_system_type: String::from("ext4"),
            nonce: None,
            removes: 0,
            forgets_in_silence: false,
            deaf_to_surveys: false,
            deaf_to_stops: false,
            only_errors: false,
            row_per_second: false,
        }
    }
}
