//! Processes and directories that are removed when dropped.
//!
//! They are also removed on panics and when the program receives SIGHUP, SIGINT or
//! SIGTERM.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs, mem};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::netns::Netns;

/// Time limit for a process to exit after SIGTERM: a kubelet kills a pod that takes longer, in the
/// middle of the sync that a proxy ends before it exits.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

static RESOURCES: Mutex<BTreeMap<usize, Resource>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicUsize = AtomicUsize::new(0);
static SIGNALS: Once = Once::new();

/// A resource to remove when a signal arrives.
#[derive(Debug)]
enum Resource {
    Process(OwnedFd),
    Directory(PathBuf),
}

/// A process in a namespace, killed when dropped.
#[derive(Debug)]
pub struct Process {
    id: usize,
    child: Child,
    output: Output,
}

/// A file in memory that a process writes its output to. A reader sees at once what the
/// process has written, as it does not with a pipe and a thread that reads it.
#[derive(Debug)]
struct Output {
    file: File,
    /// Number of bytes that were [taken](Process::take_output).
    taken: AtomicU64,
}

impl Process {
    /// Starts a command in a namespace and collects its output.
    ///
    /// # Errors
    ///
    /// If the command cannot be started.
    pub fn start(netns: &Netns, command: &mut Command) -> io::Result<Self> {
        let output = Output::new()?;
        command
            .stdin(Stdio::null())
            .stdout(output.file.try_clone()?)
            .stderr(output.file.try_clone()?);
        let child = netns.run(|| command.spawn())?;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let pid = Pid::from_child(&child);
        resources().insert(id, Resource::Process(pidfd_open(pid, PidfdFlags::empty())?));
        Ok(Self { id, child, output })
    }

    /// Returns the process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the output since the start, or since the last call of
    /// [`take_output`](Self::take_output).
    pub fn output(&self) -> String {
        text(&self.output.unread())
    }

    /// Returns the output since the last call, and removes it.
    pub fn take_output(&self) -> String {
        let bytes = self.output.unread();
        let length = bytes.len() as u64;
        self.output.taken.fetch_add(length, Ordering::Relaxed);
        text(&bytes)
    }

    /// Returns the exit status if the process has exited.
    ///
    /// # Errors
    ///
    /// If `waitpid` fails.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Sends SIGTERM, waits for the process, and returns its exit status.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] if the process has not exited after 5 s; it is killed.
    pub fn terminate(mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        let message = "did not exit after SIGTERM";
        Err(io::Error::new(io::ErrorKind::TimedOut, message))
    }

    /// Sends a signal.
    ///
    /// # Errors
    ///
    /// If the process has exited.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match resources().get(&self.id) {
            Some(Resource::Process(process)) => Ok(pidfd_send_signal(process, signal)?),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        resources().remove(&self.id);
    }
}

impl Output {
    fn new() -> io::Result<Self> {
        let file = memfd_create("output", MemfdFlags::CLOEXEC)?;
        Ok(Self {
            file: file.into(),
            taken: AtomicU64::new(0),
        })
    }

    /// Returns the bytes that were not taken.
    ///
    /// # Panics
    ///
    /// If the file cannot be read.
    fn unread(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let start = self.taken.load(Ordering::Relaxed);
        let mut buffer = [0; 16 << 10];
        loop {
            let offset = start + bytes.len() as u64;
            let length = self.file.read_at(&mut buffer, offset);
            match length.expect("memory can be read") {
                0 => return bytes,
                length => bytes.extend_from_slice(&buffer[..length]),
            }
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A temporary directory, removed when dropped.
#[derive(Debug)]
pub struct Directory {
    id: usize,
    path: PathBuf,
}

impl Directory {
    /// Creates an empty directory.
    ///
    /// # Errors
    ///
    /// If the directory cannot be created.
    pub fn new() -> io::Result<Self> {
        let id = next_id();
        let path = env::temp_dir().join(format!("vipline-{}-{id}", process::id()));
        fs::create_dir(&path)?;
        register(id, Resource::Directory(path.clone()))?;
        Ok(Self { id, path })
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file atomically.
    ///
    /// # Errors
    ///
    /// If the file cannot be written or renamed.
    pub fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let draft = self.path.join(format!(".{name}.new"));
        fs::write(&draft, text)?;
        fs::rename(&draft, self.path.join(name))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        resources().remove(&self.id);
    }
}

fn next_id() -> usize {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn register(id: usize, resource: Resource) -> io::Result<()> {
    let mut watched = Ok(());
    SIGNALS.call_once(|| watched = remove_all_when_signaled());
    resources().insert(id, resource);
    watched
}

/// Starts a thread that waits for a signal, removes everything, and exits.
fn remove_all_when_signaled() -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            remove_all();
            process::exit(128 + signal);
        }
    });
    Ok(())
}

fn remove_all() {
    for (_, resource) in mem::take(&mut *resources()) {
        match resource {
            Resource::Process(process) => {
                let _ = pidfd_send_signal(process, Signal::KILL);
            }
            Resource::Directory(path) => {
                let _ = fs::remove_dir_all(path);
            }
        }
    }
}

fn resources() -> MutexGuard<'static, BTreeMap<usize, Resource>> {
    unpoisoned(&RESOURCES)
}

/// Locks a mutex even after a panic of another thread, so that cleanup still works.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exists(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn the_output_of_a_process_is_collected_and_dropping_kills_the_process() {
        let netns = Netns::new().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo hello; exec sleep 60"]);
        let process = Process::start(&netns, &mut command).unwrap();
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while process.output() != "hello\n" {
            assert!(Instant::now() < deadline, "{:?}", process.output());
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(process.take_output(), "hello\n");
        assert_eq!((&*process.take_output(), &*process.output()), ("", ""));
        let pid = process.pid();
        assert!(exists(pid));
        drop(process);
        assert!(!exists(pid));
    }

    #[test]
    fn a_terminated_process_exits() {
        let netns = Netns::new().unwrap();
        let process = Process::start(&netns, Command::new("sleep").arg("60")).unwrap();
        let pid = process.pid();
        assert_eq!(process.terminate().unwrap().code(), None);
        assert!(!exists(pid));
    }

    #[test]
    fn a_panic_removes_processes_and_directories() {
        let seen = Mutex::new(None);
        let panicked = std::panic::catch_unwind(|| {
            let netns = Netns::new().unwrap();
            let directory = Directory::new().unwrap();
            directory.write("a.yaml", "a: b").unwrap();
            let process = Process::start(&netns, Command::new("sleep").arg("60")).unwrap();
            *seen.lock().unwrap() = Some((process.pid(), directory.path().to_owned()));
            assert!(exists(process.pid()) && directory.path().join("a.yaml").exists());
            panic!("in the middle");
        });
        assert!(panicked.is_err());
        let (pid, path) = seen.lock().unwrap().take().unwrap();
        assert!(!exists(pid) && !path.exists());
    }

    #[test]
    fn a_signal_removes_processes_and_directories() {
        let Some(folder) = env::var_os("TESTKIT_CHILD_FOLDER") else {
            return interrupt_a_child();
        };
        let netns = Netns::new().unwrap();
        let directory = Directory::new().unwrap();
        let process = Process::start(&netns, Command::new("sleep").arg("60")).unwrap();
        let line = format!("{} {}", process.pid(), directory.path().display());
        let draft = Path::new(&folder).join("draft");
        fs::write(&draft, line).unwrap();
        fs::rename(&draft, Path::new(&folder).join("child")).unwrap();
        thread::sleep(EXIT_TIMEOUT);
    }

    /// Runs the test above in a separate process, and sends SIGINT to that process.
    fn interrupt_a_child() {
        let folder = Directory::new().unwrap();
        let name = "scoped::tests::a_signal_removes_processes_and_directories";
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", name]);
        child.env("TESTKIT_CHILD_FOLDER", folder.path());
        let mut child = Process::start(&Netns::new().unwrap(), &mut child).unwrap();
        let deadline = Instant::now() + EXIT_TIMEOUT;
        let line = loop {
            assert!(Instant::now() < deadline, "{}", child.output());
            match fs::read_to_string(folder.path().join("child")) {
                Ok(line) => break line,
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        };
        let (pid, path) = line.split_once(' ').unwrap();
        let pid: u32 = pid.parse().unwrap();
        assert!(exists(pid) && Path::new(path).exists());
        child.signal(Signal::INT).unwrap();
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "{}", child.output());
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(child.try_wait().unwrap().unwrap().code(), Some(130));
        assert!(!Path::new(path).exists());
        while is_running(pid) {
            assert!(Instant::now() < deadline, "{pid} is still there");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns whether a process exists and is not a zombie.
    fn is_running(pid: u32) -> bool {
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }
}
