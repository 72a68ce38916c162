//! Reading of the lists of match `recent`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use vipline_evaluate::RecentLookup;
use vipline_iptables::{Jiffies, RecentEntry};

use crate::backend::evaluate::{RecentLists, is_listed};

/// Folders of the lists of both families, in the network namespace of the calling thread.
pub(in crate::backend) const FOLDER: &str = "/proc/thread-self/net/xt_recent";

/// Files with the kernel's counter of jiffies. Most kernels have the first one, which any user
/// can read. Only root can read the second one, and in a container it is empty.
const COUNTERS: [&str; 2] = ["/proc/schedstat", "/proc/timer_list"];

/// The lists of the kernel. Nodes have thousands, and an evaluation reads few.
///
/// The time is that of the creation.
pub(in crate::backend) struct InstalledLists {
    time: Result<Jiffies, String>,
}

impl InstalledLists {
    /// Reads the current time.
    pub(in crate::backend) fn new() -> Self {
        Self { time: read_time() }
    }
}

impl RecentLists for InstalledLists {
    fn has(&self, lookup: &RecentLookup<'_>) -> Result<bool, String> {
        let path = format!("{FOLDER}/{}", lookup.name);
        match fs::read_to_string(&path) {
            Ok(text) => {
                let entries = RecentEntry::parse_list(&text);
                let entries = entries.map_err(|error| format!("{path}: {error}"))?;
                is_listed(&entries, lookup, &self.time)
            }
            // The list was created after the rules were read, or was deleted meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(format!("{path} cannot be read: {error}")),
        }
    }
}

/// Returns the current time in jiffies, or why it is unknown: the files that do not tell it.
pub(in crate::backend) fn read_time() -> Result<Jiffies, String> {
    time_from(COUNTERS, |sysctl| format!("/proc/sys/{sysctl}"))
}

/// Reads the time from files with a counter, or without them from sysctls at these paths.
fn time_from(counters: [&str; 2], path: impl Fn(&str) -> String) -> Result<Jiffies, String> {
    // CLOCK_BOOTTIME and `/proc/uptime` also advance while the system is suspended.
    let uptime = clock_gettime(ClockId::Monotonic);
    let uptime = Duration::try_from(uptime).unwrap_or_default();
    let frequency = frequency(path);
    let known = frequency.as_ref().ok().copied();
    let mut doubts = Vec::new();
    for counter in counters {
        let time = read_counter(counter).and_then(|now| {
            Jiffies::from_counter(now, uptime, known)
                .ok_or_else(|| format!("{counter} contradicts the time since the boot"))
        });
        match time {
            Ok(time) => return Ok(time),
            Err(doubt) => doubts.push(doubt),
        }
    }
    match frequency {
        // A program of 32 bits may run on a kernel of 32 bits, where jiffies overflow.
        Ok(frequency) if cfg!(target_pointer_width = "64") => {
            return Ok(Jiffies::from_uptime(uptime, frequency));
        }
        Ok(_) => {}
        Err(doubt) => doubts.push(doubt),
    }
    let doubts = doubts.join(", ");
    Err(format!(
        "the time in jiffies, in which the list counts, is unknown: {doubts}"
    ))
}

/// Reads the first counter of a file. A node with many CPUs has megabytes after it.
fn read_counter(path: &str) -> Result<u64, String> {
    let unread = |error| format!("{path} cannot be read ({error})");
    for line in BufReader::new(File::open(path).map_err(unread)?).lines() {
        if let Some(counter) = Jiffies::parse_counter(&line.map_err(unread)?) {
            return Ok(counter);
        }
    }
    Err(format!("{path} does not show it"))
}

/// Reads the frequency.
fn frequency(path: impl Fn(&str) -> String) -> Result<u32, String> {
    let mut contents = [const { String::new() }; 4];
    for (sysctl, content) in Jiffies::FREQUENCY_SYSCTLS.into_iter().zip(&mut contents) {
        let path = path(sysctl);
        let read = fs::read_to_string(&path);
        *content = read.map_err(|error| format!("{path} cannot be read ({error})"))?;
    }
    let known = Jiffies::frequency_of_sysctls(contents.each_ref().map(|it| &**it));
    known.ok_or_else(|| "sysctls net.ipv4.route do not have their defaults".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Folder with files as the kernel has them.
    struct Files(testkit::scoped::Directory);

    impl Files {
        fn new(files: &[(&str, &str)]) -> Self {
            let folder = testkit::scoped::Directory::new().unwrap();
            for (name, text) in files {
                folder.write(name, text).unwrap();
            }
            Self(folder)
        }

        fn path(&self, name: &str) -> String {
            self.0.path().join(name).display().to_string()
        }

        fn time(&self) -> Result<Jiffies, String> {
            let counters = ["schedstat", "timer_list"].map(|name| self.path(name));
            let counters = counters.each_ref().map(|it| &**it);
            // The last part of the path is the name.
            let sysctl = |path: &str| self.path(path.rsplit('/').next().unwrap());
            time_from(counters, sysctl)
        }
    }

    const SYSCTLS: [(&str, &str); 4] = [
        ("error_cost", "250\n"),
        ("error_burst", "1250\n"),
        ("redirect_load", "5\n"),
        ("redirect_silence", "5120\n"),
    ];

    #[test]
    fn the_counter_is_read_from_the_first_file_that_shows_it() {
        let schedstat = ("schedstat", "version 15\ntimestamp 5000000000\ncpu0 0 0\n");
        let timer_list = (
            "timer_list",
            "Timer List Version: v0.10\njiffies: 6000000000\n",
        );
        let of = |files: &[(&str, &str)]| {
            let files: Vec<_> = files.iter().chain(&SYSCTLS).copied().collect();
            Files::new(&files).time()
        };
        let first = Ok(Jiffies::new(5_000_000_000, 250));
        assert_eq!(of(&[schedstat, timer_list]), first);
        assert_eq!(of(&[schedstat]), first);
        let second = Ok(Jiffies::new(6_000_000_000, 250));
        assert_eq!(of(&[timer_list]), second);
        assert_eq!(of(&[("schedstat", "version 15\n"), timer_list]), second);
    }

    #[test]
    fn a_hidden_counter_follows_from_the_time_since_the_boot() {
        let hidden = [("timer_list", "")];
        let files: Vec<_> = hidden.iter().chain(&SYSCTLS).copied().collect();
        let time = Files::new(&files).time().unwrap();
        let uptime = fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        // Whole seconds since the boot, of a machine that was not suspended.
        let since_boot = (time.now - (1 << 32) + 300 * 250) / 250;
        assert!(
            (since_boot as f64 - uptime).abs() < 2.0,
            "{since_boot} {uptime}"
        );
        assert_eq!((time.frequency, time.tolerance), (Some(250), 500));
    }

    #[test]
    fn each_file_that_does_not_tell_the_time_is_named() {
        let files = Files::new(&[("timer_list", "")]);
        let expected = format!(
            "the time in jiffies, in which the list counts, is unknown: {} cannot be read (No such \
             file or directory (os error 2)), {} does not show it, {} cannot be read (No such file \
             or directory (os error 2))",
            files.path("schedstat"),
            files.path("timer_list"),
            files.path("error_cost")
        );
        assert_eq!(files.time(), Err(expected));
        let mut changed = SYSCTLS;
        changed[0].1 = "100\n";
        let reason = Files::new(&changed).time().unwrap_err();
        let end = ", sysctls net.ipv4.route do not have their defaults";
        assert!(reason.ends_with(end), "{reason}");
    }
}
