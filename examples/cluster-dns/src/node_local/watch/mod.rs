//! Set-up, repair and removal of interface, addresses and rules.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{error, info, warn};
use vipline_netlink::{Event, Listener, Protocol};
use vipline_nftables::Monitor;
use vipline_rtnl::wire::Reply;

use super::kernel::Kernel;
use super::rules::table;
use super::{Error, Options};

/// `RTNLGRP_LINK`, `RTNLGRP_IPV4_IFADDR` and `RTNLGRP_IPV6_IFADDR` of
/// `linux/rtnetlink.h`.
const GROUPS: [u32; 3] = [1, 5, 9];

/// Time between checks without a notification.
const PERIOD: Duration = Duration::from_secs(60);

/// Minimum time between repairs, and between attempts after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// Interface, addresses and rules of this process.
///
/// A thread repairs changes by other programs. Dropping the value stops the thread and
/// changes nothing.
#[derive(Debug)]
pub struct NodeLocal {
    shared: Arc<Shared>,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// Counts of repairs and failures.
#[derive(Debug, Default)]
pub struct Counters {
    repairs: AtomicU64,
    failures: AtomicU64,
}

/// State of the thread and its owner.
#[derive(Debug)]
struct Shared {
    options: Options,
    kernel: Mutex<Kernel>,
    with_rules: AtomicBool,
    counters: Counters,
}

impl NodeLocal {
    /// Adds interface and addresses, and starts to repair changes by other programs.
    ///
    /// Takes over what another process left, including its rules. An existing interface is used, and stays at
    /// the end.
    ///
    /// # Errors
    ///
    /// - [`Error::NoDummy`]: the interface does not exist, and the kernel has no dummy
    ///   links.
    /// - [`Error::Interface`], [`Error::Rules`]: the kernel rejected a change, such as
    ///   without `CAP_NET_ADMIN`. Nothing stays, unless it is kept.
    /// - [`Error::Thread`]: the thread could not be started.
    pub fn open(options: Options) -> Result<Self, Error> {
        let mut kernel = Kernel::open()?;
        // Rules that another process left still carry questions if a process answers them.
        let with_rules = kernel.has_rules()?;
        let changes = kernel.apply(&options, with_rules).inspect_err(|_| {
            // The first error is the one to report.
            if !options.is_kept {
                let _ = kernel.remove();
            }
        })?;
        info!(interface = %options.interface, "node-local addresses added: {changes}");
        let shared = Arc::new(Shared {
            options,
            kernel: Mutex::new(kernel),
            with_rules: AtomicBool::new(with_rules),
            counters: Counters::default(),
        });
        let (stop, thread) = Self::start(&shared).inspect_err(|_| {
            if !shared.options.is_kept {
                let _ = shared.kernel().remove();
            }
        })?;
        Ok(Self {
            shared,
            stop,
            thread: Some(thread),
        })
    }

    /// Starts the thread that repairs changes. The thread ends after a byte to the socket.
    fn start(shared: &Arc<Shared>) -> Result<(UnixStream, JoinHandle<()>), Error> {
        let watch = Watch::open(shared)?;
        let (stop, stopped) = UnixStream::pair().map_err(Error::Thread)?;
        let shared = Arc::clone(shared);
        let builder = thread::Builder::new().name("node-local".to_owned());
        let thread = builder.spawn(move || watch.run(&shared, stopped));
        Ok((stop, thread.map_err(Error::Thread)?))
    }

    /// Adds the rules. From now on questions reach this process without connection
    /// tracking.
    ///
    /// # Errors
    ///
    /// [`Error`] if the kernel rejected the rules.
    pub fn serve(&self) -> Result<(), Error> {
        self.set_rules(true)
    }

    /// Removes the rules, unless they are kept. kube-proxy then serves the cluster IP of
    /// the DNS Service for new questions.
    ///
    /// # Errors
    ///
    /// [`Error`] if the kernel rejected the removal.
    pub fn withdraw(&self) -> Result<(), Error> {
        match self.shared.options.is_kept {
            true => Ok(()),
            false => self.set_rules(false),
        }
    }

    /// Removes rules, addresses and interface, unless they are kept.
    ///
    /// # Errors
    ///
    /// [`Error`] if the kernel rejected the removal.
    pub fn close(mut self) -> Result<(), Error> {
        self.stop();
        if self.shared.options.is_kept {
            info!("node-local addresses and rules stay");
            return Ok(());
        }
        let changes = self.shared.kernel().remove()?;
        info!("node-local addresses removed: {changes}");
        Ok(())
    }

    /// Returns the counts of repairs and failures.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    fn set_rules(&self, with_rules: bool) -> Result<(), Error> {
        let shared = &self.shared;
        let mut kernel = shared.kernel();
        shared.with_rules.store(with_rules, Ordering::Relaxed);
        kernel.apply(&shared.options, with_rules).map(drop)
    }

    fn stop(&mut self) {
        // The thread ends if the socket is closed, too.
        let _ = self.stop.write_all(&[0]);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for NodeLocal {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Counters {
    /// Returns the number of repairs of changes by other programs.
    pub fn repairs(&self) -> u64 {
        self.repairs.load(Ordering::Relaxed)
    }

    /// Returns the number of failed checks or repairs.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn kernel(&self) -> MutexGuard<'_, Kernel> {
        self.kernel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Restores the desired state. Returns whether it succeeded.
    fn repair(&self) -> bool {
        let mut kernel = self.kernel();
        let with_rules = self.with_rules.load(Ordering::Relaxed);
        match kernel.apply(&self.options, with_rules) {
            Ok(changes) if changes.is_empty() => true,
            Ok(changes) => {
                self.counters.repairs.fetch_add(1, Ordering::Relaxed);
                warn!("repaired changes by another program: {changes}");
                true
            }
            Err(error) => {
                self.counters.failures.fetch_add(1, Ordering::Relaxed);
                error!("node-local addresses and rules: {error}; retrying in {PAUSE:?}");
                false
            }
        }
    }
}

/// Notifications of changes by other programs.
#[derive(Debug)]
struct Watch {
    /// `None` after a failure.
    monitor: Option<Monitor>,
    listener: Option<Listener>,
}

impl Watch {
    fn open(shared: &Shared) -> Result<Self, Error> {
        let (nftables, rtnl) = shared.kernel().port_ids();
        let table = table();
        let monitor = Monitor::open(&table, &[nftables]);
        let monitor = monitor.map_err(|error| Error::Rules {
            table: table.to_string(),
            error,
        })?;
        Ok(Self {
            monitor: Some(monitor),
            listener: Some(listen(rtnl).map_err(Error::Listener)?),
        })
    }

    /// Repairs changes until `stopped` is readable.
    fn run(mut self, shared: &Shared, mut stopped: UnixStream) {
        // Changes between the set-up and the start of the notifications.
        let mut is_due = true;
        let mut earliest = Instant::now();
        loop {
            let until = match is_due {
                true => earliest.saturating_duration_since(Instant::now()),
                false => PERIOD,
            };
            if is_due && until.is_zero() {
                is_due = !shared.repair();
                earliest = Instant::now() + PAUSE;
                continue;
            }
            match self.wait(stopped.as_fd(), until) {
                Woken::Stopped => {
                    let _ = stopped.read(&mut [0]);
                    return;
                }
                Woken::Timeout => is_due = true,
                Woken::Readable => is_due |= self.read(&shared.options),
            }
        }
    }

    fn wait(&self, stopped: BorrowedFd<'_>, timeout: Duration) -> Woken {
        let monitor = self.monitor.iter().map(AsFd::as_fd);
        let listener = self.listener.iter().map(AsFd::as_fd);
        let fds = [stopped].into_iter().chain(monitor).chain(listener);
        let mut fds: Vec<_> = fds
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let timeout = Timespec::try_from(timeout).ok();
        // An interrupted wait only makes the check earlier.
        let _ = poll(&mut fds, timeout.as_ref());
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        match (ready.next(), ready.any(|is_ready| is_ready)) {
            (Some(true), _) => Woken::Stopped,
            (_, true) => Woken::Readable,
            _ => Woken::Timeout,
        }
    }

    /// Reads all notifications. Returns whether one may concern the desired state.
    fn read(&mut self, options: &Options) -> bool {
        let mut is_concerned = false;
        match self.monitor.as_mut().map(Monitor::read) {
            Some(Ok(read)) => is_concerned |= read.is_incomplete || !read.commits.is_empty(),
            Some(Err(error)) => {
                warn!("changes of the rules are found by periodic checks only: {error}");
                self.monitor = None;
                is_concerned = true;
            }
            None => {}
        }
        let read = self
            .listener
            .as_mut()
            .map(|listener| listener.read(|event| is_concerned |= concerns(options, &event)));
        if let Some(Err(error)) = read {
            warn!("changes of the interface are found by periodic checks only: {error}");
            self.listener = None;
            is_concerned = true;
        }
        is_concerned
    }
}

/// Result of a wait.
enum Woken {
    Stopped,
    Readable,
    Timeout,
}

/// Opens a listener that ignores changes by the socket with a port ID.
fn listen(port_id: u32) -> Result<Listener, vipline_netlink::Error> {
    let mut listener = Listener::open(Protocol::ROUTE)?;
    listener.ignore_port_ids(&[port_id])?;
    GROUPS
        .into_iter()
        .try_for_each(|group| listener.join(group))?;
    Ok(listener)
}

/// Returns whether an event may concern the interface or its addresses.
fn concerns(options: &Options, event: &Event<'_>) -> bool {
    let Event::Message(message) = event else {
        return true;
    };
    match Reply::decode(message.ty, message.payload) {
        Ok(Reply::Link(link)) => link.name == options.interface,
        Ok(Reply::Address(address)) => options.addresses.contains(&address.net.addr()),
        Ok(_) => false,
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests;
