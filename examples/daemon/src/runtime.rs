//! The threads of asynchronous tasks.

use std::panic;
use std::{io, process};

use tokio::runtime::{Builder, Runtime};
use tracing::error;

/// Starts threads for tasks that use sockets and timers.
///
/// Logs an error and ends the process if a thread cannot be created: then tokio panics, and
/// unwinding waits for its other threads without end.
///
/// # Errors
///
/// Descriptors cannot be created.
pub fn start(threads: usize, name: &'static str) -> io::Result<Runtime> {
    #[cfg(unix)]
    check_descriptors()?;
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(threads).thread_name(name);
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let reason = panic.payload().downcast_ref::<String>();
        let reason = reason.map_or("unknown reason", String::as_str);
        error!("cannot start the threads of {name}: {reason}");
        process::exit(1);
    }));
    let runtime = builder.enable_all().build();
    panic::set_hook(hook);
    runtime
}

/// Returns an error if the process cannot open the descriptors of a runtime.
///
/// Without the sockets for signals, tokio panics instead.
#[cfg(unix)]
fn check_descriptors() -> io::Result<()> {
    use std::os::unix::net::UnixStream;

    /// An epoll instance and its duplicate, an eventfd, a pair of sockets for
    /// signals and a duplicate of one.
    const DESCRIPTORS: usize = 6;

    let pairs = (0..DESCRIPTORS / 2).map(|_| UnixStream::pair());
    pairs.collect::<io::Result<Vec<_>>>().map(drop)
}
