//! fio's options: which describe the load and how their values read. Shared by the import of fio's results and the
//! conversion of its job files.

/// An option of fio.
#[derive(Debug)]
pub struct FioOption {
    /// As fio's reference spells it.
    pub name: &'static str,
    /// Other spellings that fio takes.
    pub aliases: &'static [&'static str],
    pub role: FioRole,
}

/// What an option is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FioRole {
    /// Describes the load; a plan has a word for it.
    Load(FioValue),
    /// Names a job, its files, or its order among others; a plan has a word for it.
    Place,
    /// How fio runs its jobs, or reports. The reason why a plan needs no word for it.
    NotTheLoad(&'static str),
    /// Describes fio's load or its measurement, and benchmesh has its own way. The reason why a plan needs no word for it.
    Settled(&'static str),
    /// Describes the load; a plan has no word for it. What comes nearest; empty if nothing does.
    Unknown(&'static str),
}

/// How the value of an option reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FioValue {
    Flag,
    /// none, sync or dsync, or a flag.
    Sync,
    /// A bare number is seconds.
    Time,
    /// Sizes, and other words that stay as they are.
    Text,
    /// A whole number, or other words.
    Number,
}

const FIGURES: &str = "benchmesh stores every figure of every second";
const PERCENTILES: &str =
    "benchmesh stores whole histograms, and reports p50 to p99.9 and the maximum";
const PROCESSES: &str = "the workers of benchmesh are threads of its agents";
const FILES: &str = "benchmesh makes and removes its own files";
const BUFFERS: &str = "every block that benchmesh writes has its own content";
const ENDS: &str = "the steps of a plan run one after the other";
const VERIFIED: &str =
    "`verify = true` checks every 4 KiB that is read, by benchmesh's own content";
const SEARCH: &str = "`search` finds the highest rate within a latency limit (docs/plan.md)";

macro_rules! options {
    ($($name:literal $([$($alias:literal),+])? => $role:expr;)*) => {
        &[$(FioOption { name: $name, aliases: &[$($($alias),+)?], role: $role }),*]
    };
}

use FioRole::{Load, NotTheLoad, Place, Settled, Unknown};
use FioValue::{Flag, Number, Sync, Text, Time};

/// The options that benchmesh knows; of any other, a plan has no word.
pub const FIO_OPTIONS: &[FioOption] = options! {
    "name" => Place;
    "description" => Place;
    "directory" => Place;
    "filename" => Place;
    "filename_format" => NotTheLoad(FILES);
    "rw" ["readwrite"] => Place;
    "buffered" => Place;
    "stonewall" ["wait_for_previous"] => Place;
    "wait_for" => Place;
    "pool" => Load(Text);
    "rbdname" => Load(Text);
    "clientname" => Load(Text);
    "clustername" => Unknown("the agents' option --allow-pool names the cluster's ceph.conf");

    "bs" ["blocksize"] => Load(Text);
    "bssplit" => Load(Text);
    "size" => Load(Text);
    "filesize" => Load(Text);
    "io_size" ["io_limit"] => Load(Text);
    "number_ios" => Load(Number);
    "offset" ["fileoffset"] => Load(Text);
    "offset_increment" => Load(Text);
    "nrfiles" ["nr_files"] => Load(Number);
    "numjobs" => Load(Number);
    "iodepth" => Load(Number);
    "ioengine" => Load(Text);
    "direct" ["odirect"] => Load(Flag);
    "runtime" ["timeout"] => Load(Time);
    "time_based" => Load(Flag);
    "ramp_time" => Load(Time);
    "loops" => Load(Number);
    "rate" => Load(Text);
    "rate_iops" => Load(Number);
    "rate_process" => Load(Text);
    "rwmixread" => Load(Number);
    "rwmixwrite" => Load(Number);
    "random_distribution" => Load(Text);
    "norandommap" => Load(Flag);
    "randseed" => Load(Number);
    "sync" => Load(Sync);
    "fsync" => Load(Number);
    "end_fsync" => Load(Flag);
    "fsync_on_close" => Load(Number);
    "overwrite" => Load(Number);
    "verify" => Load(Text);
    "do_verify" => Load(Number);
    "zero_buffers" => Load(Number);
    "buffer_pattern" => Load(Text);
    "buffer_compress_percentage" => Load(Number);
    "dedupe_percentage" => Load(Number);
    "invalidate" => Load(Number);
    "steadystate" ["ss"] => Load(Text);
    "steadystate_duration" ["ss_dur"] => Load(Time);
    "steadystate_ramp_time" ["ss_ramp"] => Load(Time);
    "kb_base" => Load(Number);

    "group_reporting" => NotTheLoad("the report has the sum of all clients, and each client");
    "unified_rw_reporting" => NotTheLoad("reads and writes are reported each, and as a sum");
    "new_group" => NotTheLoad("each phase has its own results");
    "output" => NotTheLoad(FIGURES);
    "output-format" => NotTheLoad(FIGURES);
    "write_bw_log" => NotTheLoad(FIGURES);
    "write_lat_log" => NotTheLoad(FIGURES);
    "write_iops_log" => NotTheLoad(FIGURES);
    "write_hist_log" => NotTheLoad(FIGURES);
    "log_avg_msec" => NotTheLoad(FIGURES);
    "log_hist_msec" => NotTheLoad(FIGURES);
    "log_hist_coarseness" => NotTheLoad(FIGURES);
    "log_max_value" => NotTheLoad(FIGURES);
    "log_offset" => NotTheLoad(FIGURES);
    "log_prio" => Settled(FIGURES);
    "log_unix_epoch" => NotTheLoad(FIGURES);
    "log_compression" => NotTheLoad(FIGURES);
    "log_store_compressed" => NotTheLoad(FIGURES);
    "per_job_logs" => NotTheLoad(FIGURES);
    "bwavgtime" => NotTheLoad(FIGURES);
    "iopsavgtime" => NotTheLoad(FIGURES);
    "status-interval" => Settled(FIGURES);
    "percentile_list" => NotTheLoad(PERCENTILES);
    "clat_percentiles" => NotTheLoad(PERCENTILES);
    "lat_percentiles" => NotTheLoad(PERCENTILES);
    "slat_percentiles" => NotTheLoad(PERCENTILES);
    "block_error_percentiles" => Settled(PERCENTILES);
    "significant_figures" => NotTheLoad(PERCENTILES);
    "disable_lat" => Settled(PERCENTILES);
    "disable_clat" => Settled(PERCENTILES);
    "disable_slat" => Settled(PERCENTILES);
    "disable_bw_measurement" ["disable_bw"] => Settled(FIGURES);
    "gtod_reduce" => Settled(PERCENTILES);
    "gtod_cpu" => Settled(PROCESSES);
    "clocksource" => NotTheLoad("benchmesh reads the time stamp counter, checked against CLOCK_MONOTONIC");
    "thread" => NotTheLoad(PROCESSES);
    "unlink" => NotTheLoad(FILES);
    "unlink_each_loop" => Settled(FILES);
    "create_serialize" => NotTheLoad(FILES);
    "create_fsync" => Settled(FILES);
    "create_on_open" => Settled(FILES);
    "allow_file_create" => NotTheLoad(FILES);
    "fallocate" => Settled("benchmesh writes its files before it works on them");
    "refill_buffers" => Settled(BUFFERS);
    "scramble_buffers" => Settled(BUFFERS);
    "randrepeat" ["allrandrepeat"] => Settled("the order follows from `randseed`, the same in every run");
    "random_generator" => Settled("benchmesh has its own order of random blocks");
    "exitall" => Settled(ENDS);
    "exit_what" => Settled(ENDS);
    "exitall_on_error" => Unknown("`on-error` and `on-loss` decide about errors");
    "continue_on_error" => Unknown("`on-error` decides about errors");
    "ignore_error" => Unknown("`on-error` decides about errors");
    "error_dump" => Settled("errors are counted and listed");
    "registerfiles" => Settled("benchmesh registers files and buffers with io_uring");
    "fixedbufs" => Settled("benchmesh registers files and buffers with io_uring");
    "nonvectored" => Settled("benchmesh reads and writes one buffer at a time");

    "bsrange" ["blocksize_range"] => Unknown("`bssplit` mixes given sizes");
    "fdatasync" => Unknown("`fsync` counts writes likewise, and waits for metadata too");
    "startdelay" ["start_delay"] => Unknown("`settle` waits before a step, `stagger` between its tasks");
    "rate_min" ["ratemin"] => Unknown("an `[[objective]]` or `[[alarm]]` judges a rate");
    "rate_iops_min" => Unknown("an `[[objective]]` or `[[alarm]]` judges a rate");
    "latency_target" => Unknown(SEARCH);
    "latency_window" => Unknown(SEARCH);
    "latency_percentile" => Unknown(SEARCH);
    "latency_run" => Unknown(SEARCH);
    "max_latency" => Unknown("an `[[alarm]]` ends a run by its latency");
    "fill_device" ["fill_fs"] => Unknown("the workload `fill` fills a target");
    "file_service_type" => Unknown("a worker has one file");
    "openfiles" => Unknown("a worker has one file");
    "verify_pattern" => Unknown(VERIFIED);
    "verify_interval" => Unknown(VERIFIED);
    "verify_offset" => Unknown(VERIFIED);
    "verify_fatal" => Unknown("`on-error = \"stop\"` ends a step at an error");
    "verify_dump" => Unknown(VERIFIED);
    "verify_backlog" => Unknown(VERIFIED);
    "verify_async" => Unknown(VERIFIED);
    "read_iolog" => Unknown("the workload `replay` repeats a list of operations (docs/replay.md)");
};

/// The option of this name or alias.
pub fn fio_option(name: &str) -> Option<&'static FioOption> {
    FIO_OPTIONS
        .iter()
        .find(|option| option.name == name || option.aliases.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_name_is_there_once() {
        let mut known = BTreeSet::new();
        for option in FIO_OPTIONS {
            for name in option.aliases.iter().chain([&option.name]) {
                assert!(known.insert(*name), "{name} is there twice");
            }
        }
    }
}
