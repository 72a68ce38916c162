//! Ctrl-C and its like.

use std::process;
use std::thread;

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use testkit::leftovers;

/// From now on a signal to end removes what outlives a namespace, then ends.
///
/// Starts a thread: what needs a process of one thread has to come before.
pub(crate) fn clean_up_when_interrupted() -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            leftovers::remove_all();
            process::exit(128 + signal);
        }
    });
    Ok(())
}
