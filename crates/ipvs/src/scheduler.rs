//! Flags of schedulers.

use vipline_inet::Scheduler;

use crate::Flags;

impl Flags {
    /// Returns the flags that the scheduler has, with their names.
    ///
    /// For schedulers without named flags, the names are numbered.
    pub fn of_scheduler(scheduler: &Scheduler) -> &'static [(Self, &'static str)] {
        match scheduler {
            Scheduler::SourceHash => &[
                (Self::SCHEDULER_1, "sh-fallback"),
                (Self::SCHEDULER_2, "sh-port"),
                (Self::SCHEDULER_3, "flag-3"),
            ],
            Scheduler::Maglev => &[
                (Self::SCHEDULER_1, "mh-fallback"),
                (Self::SCHEDULER_2, "mh-port"),
                (Self::SCHEDULER_3, "flag-3"),
            ],
            _ => &[
                (Self::SCHEDULER_1, "flag-1"),
                (Self::SCHEDULER_2, "flag-2"),
                (Self::SCHEDULER_3, "flag-3"),
            ],
        }
    }
}
