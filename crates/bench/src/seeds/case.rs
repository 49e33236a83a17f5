//! The loads of the seeds, and the amount of work of each here.

use std::fmt;

use serde::Serialize;

use crate::args::{Seed, SeedsArgs};
use crate::mounts::COMMIT_SECONDS;

/// The size of one write of fio, in bytes.
const BLOCK: u64 = 64 << 10;
/// The least number of blocks of a job: with fewer, the start of the jobs is measured.
const BLOCKS_MIN: u64 = 16;
/// The number of intervals between commits in the time of dbench, so that commits are measured
/// also if it is short.
const COMMITS: u64 = 4;
/// The numbers of fio's jobs that the seed measured.
const JOBS: [u64; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Load {
    Dbench,
    Fio,
    Fsmark,
}

/// A load of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Case {
    /// The seed.
    pub(crate) seed: Seed,
    /// The program.
    pub(crate) load: Load,
    /// The number of clients, jobs or threads.
    pub(crate) clients: u64,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.load {
            Load::Dbench => write!(f, "dbench {}", self.clients),
            Load::Fio => write!(f, "fio fsync x{}", self.clients),
            Load::Fsmark => write!(f, "fs_mark x{}", self.clients),
        }
    }
}

/// The amount of work.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Scale {
    /// The duration of dbench in seconds.
    pub(crate) seconds: u64,
    /// The total size that fio writes, in bytes.
    pub(crate) bytes: u64,
    /// The number of files that each thread of fs_mark creates.
    pub(crate) files: u64,
    /// The seconds between commits.
    pub(crate) commit_seconds: u64,
}

impl Scale {
    /// Returns the amount of work of these options.
    pub(crate) fn new(args: &SeedsArgs) -> Self {
        let bytes = args.mebibytes.get() << 20;
        let seconds = args.seconds.get();
        let commit_seconds = (seconds / COMMITS).clamp(1, COMMIT_SECONDS);
        Self { seconds, bytes, files: args.files.get(), commit_seconds }
    }

    /// Returns the number of blocks that each of fio's jobs writes.
    pub(crate) fn blocks(&self, jobs: u64) -> u64 {
        (self.bytes / BLOCK / jobs).max(BLOCKS_MIN)
    }

    /// Describes the work of a case.
    pub(crate) fn describe(&self, case: &Case) -> String {
        match case.load {
            Load::Dbench => format!("{} s", self.seconds),
            Load::Fio => format!("{} KiB for each job", (self.blocks(case.clients) * BLOCK) >> 10),
            Load::Fsmark => format!("{} x {} files", case.clients, self.files),
        }
    }
}

/// Returns the loads of a seed; `memory` is that of this machine in bytes.
pub(crate) fn of(seed: Seed, args: &SeedsArgs, memory: u64) -> Vec<Case> {
    let case = |load| move |clients| Case { seed, load, clients };
    let dbench = |clients: &[u64]| clients.iter().copied().map(case(Load::Dbench)).collect();
    match seed {
        Seed::S0 => dbench(&[64]),
        Seed::S1 => dbench(&[16]),
        Seed::S2 => jobs(args, memory).into_iter().map(case(Load::Fio)).collect(),
        // The seed has no figures of one client.
        Seed::S3 => dbench(&[1, 8, 16]),
        Seed::S4 => [(Load::Dbench, 200), (Load::Fsmark, 16)]
            .map(|(load, clients)| Case { seed, load, clients })
            .to_vec(),
    }
}

fn jobs(args: &SeedsArgs, memory: u64) -> Vec<u64> {
    if !args.jobs.is_empty() {
        return args.jobs.iter().map(|jobs| jobs.get()).collect();
    }
    // Each job of the real program is a process.
    let most = if memory < 8 << 30 { 256 } else { 1024 };
    JOBS.into_iter().filter(|jobs| *jobs <= most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_share_the_bytes_and_each_has_a_minimum() {
        let scale = Scale { seconds: 60, bytes: 256 << 20, files: 7, commit_seconds: 15 };
        assert_eq!((scale.blocks(1), scale.blocks(16), scale.blocks(1024)), (4096, 256, 16));
        let case = Case { seed: Seed::S2, load: Load::Fio, clients: 16 };
        assert_eq!(scale.describe(&case), "16384 KiB for each job");
    }
}
