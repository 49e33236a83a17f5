//! Options of transactions.

/// Options of a [`TransactionManager`](crate::TransactionManager).
#[derive(Clone, Debug)]
pub struct TransactionOptions {
    /// The longest time between a change and its commit, in seconds; 0 for no limit.
    pub commit_seconds: u64,
    /// Bytes of changed tree blocks above which some are written before their commit.
    pub dirty_max: usize,
    /// Discards freed space on the device, once it is free.
    pub discard: bool,
    /// Commits only in [`TransactionManager::commit`](crate::TransactionManager::commit): not in
    /// time, nor for memory or space; nor are changes merged in the background.
    pub only_asked: bool,
    /// Uses tree logs; without them each sync commits.
    pub log: bool,
    /// Behaves as before one of the seeds.
    #[cfg(feature = "experiments")]
    pub experiment: Option<crate::Experiment>,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        Self {
            commit_seconds: 30,
            dirty_max: 64 << 20,
            discard: false,
            only_asked: false,
            log: true,
            #[cfg(feature = "experiments")]
            experiment: None,
        }
    }
}
