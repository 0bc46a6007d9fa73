//! The table. A kind without a remedy needs no action; `detail` describes the figures of its events, as a clause.

use super::{EventRow, EventSource, Topic};
use crate::mesh::Severity;

kinds! {
    Agents {
        AgentLost = "agent-lost", Collector, Warning {
            meaning: "no contact for the time that the run allows, or data or start much later than those of the \
                others (see the message)",
            remedy: "check the network and the host. The plan's `on-loss` decides what the run does; the agent's \
                measurements of that time arrive later",
        }
        AgentBack = "agent-back", Collector, Info {
            meaning: "contact with a lost agent again",
        }
        ClientReturned = "client-returned", Collector, Warning {
            meaning: "a lost agent returned and continues in the running step, after the time in the message",
            remedy: "nothing; the step is partial, and its figures have the gap",
            detail: "`task_id`, `part`, `gap_us`, `from_us` and `until_us` of the gap, as far as the collector has \
                seen it",
        }
        AgentChanged = "agent-changed", Collector, Warning {
            meaning: "an agent returned during a run with another host (a reboot), name, labels or version",
            remedy: "nothing; reports of the run show the state at its beginning",
        }
        UidOfAnother = "uid-of-another", Collector, Warning {
            meaning: "an agent presented the uid of another one, as after cloning a machine, and was rejected; once a \
                minute for each",
            remedy: "remove the state directory of the copy, and join it again",
            detail: "`name`, `known_as`, `uid`, `address`",
        }
        SamplerChanged = "sampler-changed", Collector, Info {
            meaning: "another agent of the host samples it, because the previous one has been disconnected for 10 s, \
                or its own one again",
            remedy: "nothing, if an agent was restarted; see [security.md](security.md#whose-word-on-a-host-counts)",
            detail: "`former`, the previous sampler (table `samplers`)",
        }
        HostOfAnother = "host-of-another", Collector, Warning {
            meaning: "an agent sent rows about a host or its interfaces that another one samples, or about a time \
                before it was the sampler; they are dropped. At most one event a minute",
            remedy: "if no agent was moved: check that machine, or revoke it",
            detail: "`rows` of the first batch",
        }
        AgentFlood = "agent-flood", Collector, Warning {
            meaning: "an agent sent more than [an agent may within an \
                hour](operations.md#what-an-agent-may-store); its session was ended, and its data wait in its spool",
            remedy: "check that machine: many short processes match `--watch`, or it was compromised",
            detail: "`limit_bytes`, and `minutes` until it is accepted again",
        }
        WatchConflict = "watch-conflict", Agent, Warning {
            meaning: "agents of one host name the same process differently in their `--watch` rules; the first rule, \
                by the agents' names, applies",
            remedy: "give them the same `--watch`",
        }
        ClientFrozen = "client-frozen", Agent, Warning {
            meaning: "the agent did not run for 2 s or more in the middle of a step",
            remedy: "find the cause on the host: a paused VM, a debugger, no memory. Measure again",
            detail: "`since_us`, `frozen_us`",
        }
        ClockGap = "clock-gap", Agent, Warning {
            meaning: "an agent's clock and mesh time jumped apart by more than errors and slews explain",
            remedy: "find the cause on the host: a paused VM, a suspended machine. Rows are dated by the new mapping \
                from then on",
            detail: "`ahead_us`, by which mesh time went ahead of it, and `cause`: `suspended`, where CLOCK_BOOTTIME \
                went on and CLOCK_MONOTONIC did not, `stood-still`, as in a paused virtual machine or after a reboot \
                of the collector's machine, or `mesh-stood-still`",
        }
        WallClockStep = "wall-clock-step", Agent, Warning {
            meaning: "the wall clock was set",
            remedy: "nothing: mesh time does not follow it",
            detail: "`step_us`, by how much an agent's or, without an agent, the collector's clock was set",
        }
        LeaseOver = "lease-over", Agent, Warning {
            meaning: "no contact for the lease of the load, so that it was stopped",
            remedy: "find out why the collector was unreachable for so long",
        }
        RateSharedAgain = "rate-shared-again", Collector, Warning {
            meaning: "a rate of the step is divided among the remaining tasks",
            remedy: "nothing; the step is flagged",
        }
    }
    Loads {
        Stall = "stall", Agent, Warning {
            meaning: "an operation made no progress for `stall-after`",
            remedy: "check the storage at that time; `on-stall = \"abort\"` ends such a run",
            detail: "`host`, `worker`, `op`, `path`, `offset`, `since_us`, `lasted_us`; before and after the load, \
                `op` is `prepare` or `finish`, `call` the system call that does not return, and `worker` null",
        }
        StallOver = "stall-over", Agent, Info {
            meaning: "that operation made progress again",
            detail: "as `stall`",
        }
        Alarm = "alarm", Collector, Warning {
            meaning: "a condition of the plan ([alarms](operations.md#alarms)) holds",
            remedy: "the message contains the figure; `then = \"stop\"` or `\"abort\"` ends such a run",
            detail: "`alarm` (the number of its `[[alarm]]`, from 1), `when`, `daemon` and `daemon_id` if it is about \
                a daemon, and `because`, the figure that raised it",
        }
        AlarmOver = "alarm-over", Collector, Info {
            meaning: "that condition has not held for 5 s",
            detail: "as `alarm`",
        }
        AlarmCommand = "alarm-command", Collector, Warning {
            meaning: "the [command of `--on-alarm`](operations.md#a-command-for-alarms) failed, took too long, or got \
                more alarms than one a second",
            remedy: "run it manually with its variables",
        }
        RowsTooLate = "rows-too-late", Collector, Warning {
            meaning: "an agent delivered rows of a step after \
                [retention](operations.md#what-the-database-keeps-how-long) had merged or deleted the others",
            remedy: "the results do not include them; a larger `--max-size`, if the size limit removed them early",
        }
        ObjectiveBroken = "objective-broken", Collector, Warning {
            meaning: "more seconds were bad than an [objective](operations.md#objectives) of the plan allows",
            remedy: "the report's table of objectives; `step_objectives` contains the seconds of each step",
        }
        OperationStuck = "operation-stuck", Agent, Warning {
            meaning: "a system call does not return, even when the load is to end",
            remedy: "the file system hangs: the thread stays until the kernel releases it",
        }
        ErrorsLimit = "errors-limit", Collector, Warning {
            meaning: "a task ended after nothing but errors",
            remedy: "the message contains the errno and the path",
        }
        TargetLost = "target-lost", Collector, Warning {
            meaning: "an agent could not prepare a step because its target is gone",
            remedy: "the message contains the errno and the path",
        }
        LinkBroken = "link-broken", Collector, Warning {
            meaning: "a connection of a link broke before its time",
            remedy: "the message contains the errno and the address",
        }
        PrepareFailed = "prepare-failed", Collector, Warning {
            meaning: "an agent could not prepare its tasks for another reason, and the step continues without it",
            remedy: "the message contains the reason; repair that host, or choose `on-loss = \"abort\"`",
        }
        TaskStopped = "task-stopped", Collector, Warning {
            meaning: "an agent ended its task early",
            remedy: "the message contains the reason: space, a limit of its policy",
        }
        LoadStopped = "load-stopped", Collector, Info {
            meaning: "a task was stopped before its end, by a user or a limit; a warning if operations began long \
                after, or no task has reported its end",
            detail: "`stopped_us`, the instant of the stop or abort, `last_begun_us` of the step's last operation, \
                `tasks`, and `tasks_untold`, the number of those that have not reported it",
        }
        LastLoopRequested = "last-loop-requested", Collector, Info {
            meaning: "`benchmesh stop --after-loop` or `benchmesh measure` lets the run end after its loop",
            detail: "`role`, `name` and `address` of the requester",
        }
        ModeLeftOut = "mode-left-out", Collector, Warning {
            meaning: "an impossible mode was skipped",
            remedy: "correct the plan",
        }
        TargetNotMounted = "target-not-mounted", Collector, Warning {
            meaning: "a target is not the file system that the plan names",
            remedy: "correct the plan, or mount the target",
        }
        EngineFallback = "engine-fallback", Agent, Warning {
            meaning: "the kernel refuses io_uring, and threads did the operations, as `ioengine-fallback` allows",
            remedy: "`ioengine` and `ioengine-fallback` in [plan.md](plan.md)",
        }
        EnginePsync = "engine-psync", Agent, Warning {
            meaning: "the target is on tmpfs: pread and pwrite one at a time instead of `iodepth` in flight",
            remedy: "`ioengine` in [plan.md](plan.md)",
        }
        BuffersUnregistered = "buffers-unregistered", Agent, Warning {
            meaning: "the kernel did not pin io_uring's buffers, mostly because too little memory may be locked, so \
                that each operation pins its own",
            remedy: "raise `ulimit -l`, or give the agent CAP_IPC_LOCK",
        }
        SocketBuffer = "socket-buffer", Agent, Warning {
            meaning: "the kernel gave a smaller socket buffer than requested",
            remedy: "raise `net.core.rmem_max`",
        }
        CacheNotDropped = "cache-not-dropped", Collector, Warning {
            meaning: "not all caches of a cold step were dropped",
            remedy: "start the named agents as root with `--allow-drop-caches`",
        }
        SettleLimit = "settle-limit", Collector, Warning {
            meaning: "the storage was not idle in time",
            remedy: "`settle = { idle = ..., limit = ... }` with a longer limit",
        }
        SettleBlind = "settle-blind", Collector, Warning {
            meaning: "no agent samples the storage, so that it is not known when it is idle",
            remedy: "an agent on the storage hosts",
        }
        SearchFound = "search-found", Collector, Info {
            meaning: "a search for the highest rate ended with one",
            detail: "with its last probe as `step_id`: `while`, `figure`, `within`, `highest_per_s` (operations per \
                second of all clients), `ordinal` of its step and `latency_ms` there, `beyond_per_s`, \
                `beyond_latency_ms` and `beyond_ordinal` of the lowest rate that did not pass (`beyond_per_s` is null \
                if that is the load without a rate), `words`, and `probes`, an array in their order: `ordinal`, \
                `rate_per_s` (null: without), `ops_per_s`, `latency_ms`, `errors` and `verdict` (`passed`, `too slow`, \
                `behind its rate`, `errors`, `not measured`), all with their values at the time of the decision",
        }
        SearchNotFound = "search-not-found", Collector, Warning {
            meaning: "a search for the highest rate ended without one",
            remedy: "the message names the failure: a longer `runtime`, more `steps`, or a wider bound (`while`)",
            detail: "as `search-found`",
        }
        Steady = "steady", Collector, Info {
            meaning: "the load of a step with `until = \"steady\"` became steady",
            detail: "`figure` (`iops`, `bw` in bytes per second, `lat` in ns), `window_s`, `after_s` (from the step's \
                start to the end of the window), and for the window `mean`, `range` (largest minus smallest value), \
                `deviation` (largest from the mean), `slope` (of the linear fit, from value to value) and `change` (of \
                the fit over the window), in the figure's unit; `words` are these with the limits",
        }
        NotSteady = "not-steady", Collector, Warning {
            meaning: "it did not within `runtime`",
            remedy: "a longer `runtime`, or a wider limit (`ss`); the message names the exceeded limit",
            detail: "as `steady`; without one, no window was complete",
        }
        DirectoryLeft = "directory-left", Collector, Warning {
            meaning: "a run's directory stays for now",
            remedy: "`benchmesh agent clean` on that host, if it stays",
            detail: "`run_uid`, `path`",
        }
        DirectoryRemoved = "directory-removed", Collector, Info {
            meaning: "a directory that was left at the run's end was removed",
            detail: "as `directory-left`",
        }
        CellLeft = "cell-left", Collector, Warning {
            meaning: "the data of a cell stay until the run ends",
            remedy: "`benchmesh agent clean` on that host, if they stay",
        }
        AgentTidied = "agent-tidied", Collector, Info {
            meaning: "an agent that returned still ran a task of an earlier step, which was stopped",
        }
    }
    Steps {
        StepLate = "step-late", Collector, Warning {
            meaning: "confirmations came too late; the step was armed again",
            remedy: "a slow network or a busy collector; ignore a single occurrence",
        }
        StepPartial = "step-partial", Collector, Warning {
            meaning: "some clients did not finish",
            remedy: "the message names them",
        }
        StepFailed = "step-failed", Collector, Error {
            meaning: "a step has no usable result",
            remedy: "the message contains the reason",
        }
        RunDone = "run-done", Collector, Info {
            meaning: "a run has ended",
        }
        RunStopped = "run-stopped", Collector, Info {
            meaning: "a run was ended early",
            remedy: "[`benchmesh resume`](operations.md#taking-up-a-run-that-has-ended) continues it",
        }
        RunFailed = "run-failed", Collector, Error {
            meaning: "a run has failed",
            remedy: "the message and `benchmesh report` give the reason; [`benchmesh \
                resume`](operations.md#taking-up-a-run-that-has-ended) continues it",
        }
        RunResumed = "run-resumed", Collector, Info {
            meaning: "an ended run continues; the message contains the number of repeated steps",
        }
        TargetChanged = "target-changed", Collector, Warning {
            meaning: "a run was resumed with `--even-if-changed` although a target has another file system, device, \
                size or version",
            remedy: "compare steps from before and after it with care",
        }
        StepResumed = "step-resumed", Collector, Info {
            meaning: "the collector was restarted in the middle of a step, which continues",
        }
        CellBegunAnew = "cell-begun-anew", Collector, Warning {
            meaning: "the steps of a cell are repeated; the message contains the reason",
        }
    }
    Daemons {
        DaemonStarted = "daemon-started", Sampler, Info {
            meaning: "a watched daemon started while its host was sampled",
            remedy: "if this was not intended: read its log",
            detail: "`name`, `instance`, `pid`, `start_ticks`",
        }
        DaemonEnded = "daemon-ended", Sampler, Info {
            meaning: "a watched daemon ended",
            remedy: "if this was not intended: read its log. The run's step is flagged",
            detail: "as `daemon-started`",
        }
        DaemonRestarted = "daemon-restarted", Sampler, Warning {
            meaning: "a watched daemon was restarted",
            remedy: "if this was not intended: read its log. The run's step is flagged",
            detail: "as `daemon-started`",
        }
        DaemonStopped = "daemon-stopped", Sampler, Warning {
            meaning: "a watched daemon was stopped by a signal, which the kernel shows as state `T`, or its cgroup was \
                frozen",
            remedy: "find the cause",
            detail: "as `daemon-started`",
        }
        DaemonContinued = "daemon-continued", Sampler, Info {
            meaning: "that daemon runs again",
            detail: "as `daemon-started`",
        }
        CarrierLost = "carrier-lost", InterfaceSampler, Warning {
            meaning: "the other end of an interface disappeared",
            remedy: "cable, switch, driver; `ethtool -S`",
            detail: "`interface`",
        }
        CarrierBack = "carrier-back", InterfaceSampler, Info {
            meaning: "the other end of an interface returned",
            detail: "`interface`",
        }
        LinkErrors = "link-errors", InterfaceSampler, Warning {
            meaning: "an interface counted errors, or dropped ten packets and one of 10,000 or more; at most one event \
                a minute and interface",
            remedy: "cable, switch, driver; `ethtool -S`",
            detail: "`interface`, `since_us`, `rx_errors`, `tx_errors`, `rx_dropped`, `tx_dropped`, `packets`",
        }
        LinkSilent = "link-silent", Agent, Warning {
            meaning: "an interface with a carrier received nothing for 10 s of a step while it sent",
            remedy: "cable, switch, driver; `ethtool -S`",
            detail: "`interface`, `since_us`, `sent_packets`",
        }
        LinkSilentOver = "link-silent-over", Agent, Info {
            meaning: "that interface receives again",
            detail: "`interface`, `since_us`",
        }
        ClusterDegraded = "cluster-degraded", Agent, Warning {
            meaning: "a storage cluster reported that it is degraded",
            remedy: "check its own health report; results of that time are those of a degraded cluster",
            detail: "`system`, `since_us`",
        }
        ClusterDegradedOver = "cluster-degraded-over", Agent, Info {
            meaning: "that cluster reported that it has recovered",
            detail: "`system`, `since_us`, `lasted_us`",
        }
        FactsFailed = "facts-failed", Agent, Warning {
            meaning: "a command of `--facts` hung, wrote too much or failed: its facts are missing",
            remedy: "`benchmesh doctor` with the agent's options; the message contains the command and its error",
            detail: "`system`",
        }
    }
    Database {
        DatabaseBlocked = "database-blocked", Collector, Warning {
            meaning: "it could not be written for a while: a full or broken disk",
            remedy: "free space; no data were lost while agents had space",
            detail: "`from_us` and `until_us`, the time in which the database could not be written",
        }
        SizeLimit = "size-limit", Collector, Info {
            meaning: "the database was above `--max-size`: rows of seconds of that run were merged, or deleted",
            remedy: "nothing, or a larger `--max-size`; `--keep-tag` for runs that must keep them",
        }
        SizeLimitExceeded = "size-limit-exceeded", Collector, Warning {
            meaning: "it is above `--max-size`, and nothing is left that may be merged or deleted",
            remedy: "a larger `--max-size`, fewer runs with a tag of `--keep-tag`, or `benchmesh db delete RUN`",
        }
        DatabaseLow = "database-low", Collector, Warning {
            meaning: "its disk has less free space than is reserved for results: samples are dropped and count as \
                lost, and no new run is accepted",
            remedy: "free space; `benchmesh db delete RUN`",
        }
        DatabaseRoom = "database-room", Collector, Info {
            meaning: "its disk has space again",
        }
        DatabaseRestored = "database-restored", Agent, Warning {
            meaning: "an older copy of it was restored; one event of each agent, and one for each run that it has \
                measured since it started",
            remedy: "nothing; the missing data are reported for each run",
            detail: "`vanished_batches`, which the lost database had stored for the agent, and the `batches`, `bytes` \
                and `spools` that were not delivered; of a run: `run_uid`, `vanished_batches`, `vanished_operations`, \
                `batches` and `operations` that were not delivered, and `is_exact` (0: they are upper bounds), without \
                `run_id` if the database never had the run",
        }
        ArchiveFailed = "archive-failed", Collector, Warning {
            meaning: "ended runs could not be copied into the archive of `--archive`; they wait, and are tried again \
                with growing pauses of up to 10 minutes",
            remedy: "the message has the server's answer and what to do about it; no results are lost",
        }
        ArchiveWorks = "archive-works", Collector, Info {
            meaning: "ended runs are copied into the archive again",
        }
        SpoolBlocked = "spool-blocked", Collector, Warning {
            meaning: "an agent cannot write its spool; recorded at once, without figures",
            remedy: "free space below its state directory",
        }
        SpoolWritable = "spool-writable", Agent, Warning {
            meaning: "the disk of the agent's state directory accepts data again",
            detail: "`blocked_us`, for how long it did not",
        }
        SpoolFull = "spool-full", Agent, Warning {
            meaning: "a spool reached `--spool-limit` while the collector was unreachable, and its oldest data are \
                dropped",
            remedy: "a larger limit; dropped data are counted",
            detail: "`limit_bytes`",
        }
        SpoolGap = "spool-gap", Agent, Warning {
            meaning: "batches will not arrive: the agent's disk damaged or lost them, or the collector refused them",
            remedy: "check that disk; the steps are flagged `batches-lost`",
            detail: "`spool`, `first`, `last`, `batches`, `reason` (`damaged`, `tail`, `missing` or `refused`), and \
                the time in which they were measured: `from_us`, `until_us`; each has a row in `losses` too",
        }
        SpoolUnreadable = "spool-unreadable", Agent, Warning {
            meaning: "the agent's disk destroyed spools, completely or from some point on",
            remedy: "check that disk; the steps are flagged `batches-lost`",
            detail: "`spools`",
        }
        RowsMissing = "rows-missing", Collector, Warning {
            meaning: "a task has ended, but not all of its rows have arrived",
            remedy: "wait: results are computed again when they arrive",
        }
        RowsLeftOut = "rows-left-out", Collector, Warning {
            meaning: "an agent sent rows of a task, a run or a step that this database does not have or that is not \
                the agent's: of a deleted run, of another database, or of the time after the copy from which a \
                database was restored; or samples of daemons whose description was lost. They are dropped, and the other \
                rows of the batch are stored",
            remedy: "after a restore or `db delete`: nothing. Otherwise an agent misbehaves: read its log, or revoke \
                it",
            detail: "one event for each agent and run, whose figures continue to count: `run_uid` (empty: the agent \
                did not report it, or has had 64 such events), `intervals`, `operations`, `task_ends`, `events`, \
                `daemon_samples`",
        }
        TasksOfOthers = "tasks-of-others", Collector, Warning {
            meaning: "an agent claimed tasks of other agents when it attached, which is ignored; at most once a minute",
            remedy: "after a restore: nothing. Otherwise an agent misbehaves: read its log, or revoke it",
            detail: "`tasks`, how many",
        }
    }
    Trust {
        StartRequested = "start-requested", Collector, Info {
            meaning: "a run was started",
            detail: "`role` and `name` of the certificate that asked, null without TLS, and the `address` it asked \
                from",
        }
        ResumeRequested = "resume-requested", Collector, Info {
            meaning: "a run was resumed",
            detail: "as `start-requested`",
        }
        StopRequested = "stop-requested", Collector, Info {
            meaning: "a run was asked to stop",
            detail: "as `start-requested`",
        }
        Insecure = "insecure", Collector, Warning {
            meaning: "a run was started without TLS",
            remedy: "restart the collector without `--insecure`, unless you trust the network",
        }
        DataRemoved = "data-removed", Collector, Info {
            meaning: "`benchmesh data remove` was requested for data that plans keep on targets: how many parts were \
                removed, and why others were not",
            detail: "as `start-requested`",
        }
        PruneRequested = "prune-requested", Collector, Info {
            meaning: "`benchmesh db prune` was requested for rows of old runs",
            detail: "as `start-requested`",
        }
        TokenMade = "token-made", Collector, Info {
            meaning: "a join token was created",
            detail: "as `start-requested`, with null if only a token was presented, and the owner of the certificate \
                or token as `of_role` and `of_name`; `token` (the first eight digits of the SHA-256 of its secret), \
                `uses`, `ttl_s`, `replace`, `replaces`: the only member that it may replace",
        }
        TokenUsed = "token-used", Collector, Info {
            meaning: "a token was used to join",
            detail: "as `token-made`: `token`, `uses_left`",
        }
        TokenExhausted = "token-exhausted", Collector, Info {
            meaning: "a token has no use left",
            detail: "as `token-made`: `token`",
        }
        TokenCancelled = "token-cancelled", Collector, Info {
            meaning: "a token was cancelled",
            detail: "as `token-made`: `token`, `uses`",
        }
        CertificateIssued = "certificate-issued", Collector, Info {
            meaning: "to whom, and for which token or by whom, a certificate was issued",
            detail: "as `token-made`: `token`; null: on behalf of the collector's own user",
        }
        CertificateRenewed = "certificate-renewed", Collector, Info {
            meaning: "a certificate was renewed by its owner",
            detail: "as `token-made`, without `token`",
        }
        CertificateRevoked = "certificate-revoked", Collector, Info {
            meaning: "all certificates of a name were revoked",
            detail: "as `token-made`: `certificates`, how many of that name, and their `fingerprints`",
        }
        AgentRenamed = "agent-renamed", Collector, Info {
            meaning: "an agent joined under another name, to which its uid moved; its history continues",
            detail: "as `token-made`: `former_name`",
        }
    }
}
