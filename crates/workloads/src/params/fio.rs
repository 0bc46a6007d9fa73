//! Maps the keys of fio's job files to a plan's keys with other names.

/// What to write instead of fio's key; `None` if fio has no such key, or if it has the same name here.
pub fn fio_hint(key: &str) -> Option<&'static str> {
    let hint = match key {
        "rw" | "readwrite" => {
            "fio's rw is `modes` here: modes = [\"randread\"]; trims are not measured"
        }
        "rwmixwrite" => "write rwmixread instead: 100 minus fio's rwmixwrite",
        "blocksize" | "block_size" => "fio's blocksize is `bs` here",
        "bsrange" | "blocksize_range" => "write a mix of sizes instead: bssplit = \"4k/50:64k/50\"",
        "bs_unaligned" | "blockalign" | "ba" => "blocks are always aligned to their size here",
        "directory" => "fio's directory is the `path` of a [targets.NAME] here",
        "filename" => {
            "fio's filename is the `path` of a [targets.NAME] here: a directory, or a block device"
        }
        "nrfiles" => {
            "each worker of `io` has one file: raise numjobs; for many files use workload `files` with files = N"
        }
        "filesize" | "file_size" => "fio's filesize is `size` here",
        "number_ios" => "limit the work by io_size (bytes), loops or runtime",
        "time_based" => {
            "leave it out: a phase with `runtime` repeats passes over its data until that time, unless `loops` or \
             `io_size` ends it"
        }
        "timeout" => "fio's timeout is `runtime` here",
        "startdelay" => {
            "tasks start together; `stagger` delays each task after the previous one, `settle` waits before the step"
        }
        "stonewall" | "wait_for" => {
            "leave it out: phases run one after the other; concurrent loads belong in [[phase.group]]"
        }
        "group_reporting" => {
            "leave it out: results are always totals over all workers, and v_results has them per step"
        }
        "thread" => "leave it out: workers are always threads",
        "invalidate" => {
            "fio's invalidate is cache = \"cold\" here, which drops the caches of clients and storage hosts"
        }
        "fdatasync" => "write fsync = N instead, or sync = \"dsync\" for each write",
        "fsync_on_close" => "fio's fsync_on_close is `end_fsync` here",
        "buffered" => "fio's buffered is the opposite of `direct` here",
        "seed" | "randrepeat" | "allrandrepeat" => {
            "the random order is the same in each run; `randseed` of `io` changes it"
        }
        "randomize_order" => "the order of cells is order = \"random\" at the top of the plan",
        "zero_buffers" => "fio's zero_buffers is data = \"zero\" here",
        "refill_buffers" | "scramble_buffers" => {
            "leave it out: written data are always new, unless data = \"zero\""
        }
        "buffer_compress_percentage" => "write data = { compress = 50 }",
        "dedupe_percentage" => "write data = { dedupe = 20 }",
        "do_verify" | "verify_pattern" | "verify_fatal" | "verify_interval" => {
            "verify = true checks all reads; on-error = \"stop\" ends the step at the first error"
        }
        "iodepth_batch" | "iodepth_batch_submit" | "iodepth_batch_complete" | "iodepth_low" => {
            "each worker keeps `iodepth` operations in flight, submitted as others complete"
        }
        "rate_min" | "rate_iops_min" => {
            "a load that falls behind its rate shows in response time, and is flagged"
        }
        "thinktime" => "set the pace by rate_iops or rate",
        "latency_target" | "max_latency" => {
            "find the highest load within a latency limit by `search` or `load-curve`"
        }
        "percentage_random" => "use the modes `rw` and `randrw`, or a phase for each",
        "zipf" | "file_service_type" => "fio's zipf is random_distribution = \"zipf:1.1\" here",
        "continue_on_error" => {
            "fio's continue_on_error is `on-error` here: \"continue\" or \"stop\""
        }
        "write_bw_log" | "write_iops_log" | "write_lat_log" | "log_avg_msec"
        | "percentile_list" => {
            "leave it out: every second of every task is stored, with its histogram (v_timeline)"
        }
        "create_on_open" | "create_serialize" | "overwrite" | "unlink" => {
            "leave it out: data that a mode needs are laid out before it, unmeasured, and removed after the last mode"
        }
        "description" => "write it as a comment, or as the phase's `name`",
        _ => return None,
    };
    Some(hint)
}
