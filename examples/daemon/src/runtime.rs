//! The threads of asynchronous tasks.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// Starts threads for tasks that use sockets and timers.
///
/// # Errors
///
/// Threads or descriptors cannot be created.
pub fn start(threads: usize, name: &str) -> io::Result<Runtime> {
    #[cfg(unix)]
    check_descriptors()?;
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(threads).thread_name(name);
    builder.enable_all().build()
}

/// Returns an error if the process cannot open the descriptors of a runtime.
///
/// For two of them, tokio panics instead.
#[cfg(unix)]
fn check_descriptors() -> io::Result<()> {
    use std::os::unix::net::UnixStream;

    /// An epoll instance and its duplicate, an eventfd, a pair of sockets for
    /// signals and a duplicate of one.
    const DESCRIPTORS: usize = 6;

    let pairs = (0..DESCRIPTORS / 2).map(|_| UnixStream::pair());
    pairs.collect::<io::Result<Vec<_>>>().map(drop)
}
