//! Builds the files and the init script of a guest, and boots it.
//!
//! A guest has the programs and libraries of the host, at the paths of the host, because the test
//! binaries were linked with these libraries and run these programs. It has nothing else, so what
//! a test needs is in a list below; a forgotten program shows as a failed test.
//!
//! The only way out of the guest is its serial console. The script puts marks between the lines
//! of the suites, and `results.rs` reads them:
//!
//! ```text
//! @vm begin 0
//! test dumps::of_a_set ... ok
//! @vm end 0 0           number of the suite, and exit status of its binary
//! @vm done              the script has come to its end
//! ```
//!
//! What must stay true: every end of a guest comes in time, and only a good one prints `done`. A
//! panic ends QEMU (`panic=-1` and `-no-reboot`), a test that hangs meets the time limit, and if
//! this task is killed, QEMU is killed with it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::archive::Archive;
use super::kernels::Kernel;
use super::modules::Modules;
use super::results::{MARK, Results};
use crate::process::{execute, execute_with_output};
use crate::tools;

/// Time limit of a guest. An idle host needs 14 minutes, and CI once needed more than 20.
const MAX_GUEST_TIME: Duration = Duration::from_secs(2400);

/// Memory of the guest in MiB. Half is available for files, which are all in memory.
const MEMORY_MIB: &str = "1024";

/// Model of the virtual processor.
///
/// The emulation of newer ones costs a third more: `rep movs` of single bytes, page
/// tables of five levels, and registers to save in each context switch. With several
/// processors it costs a tenth more, and one of them may execute an `int3` that another
/// has just replaced (text patching), which panics.
const PROCESSOR: &str = "Nehalem";

/// Parameters of the kernel.
const PARAMETERS: [&str; 10] = [
    "console=ttyS0",
    // After a panic restart at once, which `-no-reboot` turns into the end of QEMU. Otherwise a
    // guest without a kernel would last until the time limit.
    "panic=-1",
    // Messages of the kernel go to the same console, and one in the middle of a line of libtest
    // makes a passed test look like one that did not run.
    "quiet",
    "loglevel=3",
    // On a busy host QEMU delays the ticks that the kernel waits for, and the kernel panics:
    // "IO-APIC + timer doesn't work".
    "no_timer_check",
    // At fixed addresses, QEMU translates the code of a program once and not in each
    // process: this halves its CPU time.
    "norandmaps",
    // Hardening takes a tenth of the CPU time. Indirect jumps are the slowest part of
    // the emulation, and retpolines multiply them.
    "mitigations=off",
    "init_on_alloc=0",
    "hardened_usercopy=off",
    "randomize_kstack_offset=off",
];

/// Tests of one binary that run at the same time: they wait a part of their time. Not 1, also
/// because libtest then prints the name of a test before it runs, and the result after its
/// output, on what may be another line.
const TEST_THREADS: &str = "2";

/// Index files of `modprobe`. Without those of aliases, the kernel asks for `xt_addrtype` or a
/// family of netlink in vain.
const INDEXES: [&str; 6] = [
    "modules.alias.bin",
    "modules.builtin.alias.bin",
    "modules.builtin.bin",
    "modules.dep.bin",
    "modules.softdep",
    "modules.symbols.bin",
];

/// Programs that tests run, in addition to those of iptables.
const PROGRAMS: [&str; 10] = [
    "conntrack",
    "ip",
    "ipset",
    "ipvsadm",
    "nfacct",
    "nft",
    "setpriv",
    "sh",
    "sysctl",
    "unshare",
];

/// Folder of the extensions that iptables loads at run time, so that `ldd` does not list them.
const PLUGINS: &str = "/usr/lib/x86_64-linux-gnu/xtables";

/// A command that the guest runs.
#[derive(Debug)]
pub(super) struct Run {
    /// Working directory: that of `cargo test`, the folder of the package.
    pub(super) folder: PathBuf,
    /// Shell command.
    pub(super) command: String,
}

/// Returns the files that guests of all kernels share: programs, their libraries, and
/// `binaries` of the workspace.
pub(super) fn base(binaries: &[&Path], cache: &Path) -> Result<Archive> {
    let mut archive = Archive::default();
    // The script mounts file systems on three of them, links the applets of busybox in another,
    // and programs want the rest.
    for folder in ["/applets", "/dev", "/proc", "/run", "/sys", "/tmp"] {
        archive.folder(folder);
    }
    let busybox = busybox()?;
    archive.copy(&busybox)?;
    // The kernel runs modprobe from this path.
    archive.copy("/sbin/modprobe")?;
    // Programs look up names such as `sctp` in it, and tests compare ours with it.
    archive.copy("/etc/protocols")?;
    archive.copy_all(Path::new(PLUGINS))?;
    let mut linked = vec![PathBuf::from("/sbin/modprobe")];
    // `ldd` fails if one of its files has no libraries.
    if is_dynamic(&busybox)? {
        linked.push(busybox);
    }
    for name in PROGRAMS.map(str::to_owned).into_iter().chain(iptables()) {
        let path = tools::find(&name).with_context(|| format!("{name} is not installed"))?;
        archive.copy(&path)?;
        linked.push(path);
    }
    // Extensions may need libraries that no program is linked with.
    for plugin in fs::read_dir(PLUGINS)? {
        linked.push(plugin?.path());
    }
    linked.extend(binaries.iter().map(PathBuf::from));
    for library in libraries(&linked)? {
        archive.copy(library)?;
    }
    for (number, file) in binaries.iter().enumerate() {
        archive.file(binary(number), stripped(file, cache)?);
    }
    Ok(archive)
}

/// Adds the modules of a kernel and the init script.
pub(super) fn add<'a>(
    archive: &mut Archive,
    kernel: &Kernel,
    runs: impl IntoIterator<Item = &'a Run>,
) -> Result<()> {
    let (from, to) = (kernel.modules(), kernel.guest_modules()?);
    let dependencies = fs::read_to_string(from.join("modules.dep"))?;
    let modules = Modules::parse(&dependencies)?;
    for file in modules.included()?.into_iter().chain(INDEXES) {
        let content = fs::read(from.join(file)).with_context(|| file.to_owned())?;
        archive.file(to.join(file), content);
    }
    archive.file("/init", script(&busybox()?, &modules.loaded()?, runs));
    Ok(())
}

/// Boots a guest, and calls `on_line` for each line that it prints until it powers off.
pub(super) fn run(
    kernel: &Kernel,
    initramfs: &Path,
    mut on_line: impl FnMut(&str),
) -> Result<Results> {
    // A guest ends with this task, even if a signal kills the task.
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
        .args(["-accel", "tcg", "-smp", "1", "-cpu", PROCESSOR])
        // Without the devices of QEMU, which include a network card, and without settings of the
        // user, which might add some.
        .args([
            "-m",
            MEMORY_MIB,
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
        ])
        .args(["-display", "none", "-serial", "stdio"])
        .args(["-append", &PARAMETERS.join(" ")])
        .arg("-kernel")
        .arg(kernel.image())
        .arg("-initrd")
        .arg(initramfs);
    let mut results = Results::default();
    execute_with_output(MAX_GUEST_TIME, &mut command, |line| {
        // The console ends lines with CR and LF, and `... ok\r` is not `... ok`.
        let line = line.trim_end_matches('\r');
        on_line(line);
        results.record(line);
    })?;
    Ok(results)
}

/// Returns the init script of the guest.
fn script<'a>(busybox: &Path, modules: &[&str], runs: impl IntoIterator<Item = &'a Run>) -> String {
    let busybox = busybox.display();
    let mut text = format!(
        "#!{busybox} sh\n\
        {busybox} --install -s /applets\n\
        export PATH=/usr/sbin:/usr/bin:/applets HOME=/ RUST_TEST_THREADS={TEST_THREADS}\n\
        mount -t devtmpfs none /dev\n\
        mount -t proc none /proc\n\
        mount -t sysfs none /sys\n\
        (sleep {}; poweroff -f) &\n",
        MAX_GUEST_TIME.as_secs()
    );
    // A module that cannot be loaded is an error of the guest and does not stop the suites: their
    // results tell what depends on it.
    for module in modules {
        text += &format!("/sbin/modprobe {module} || echo '{MARK}failed: modprobe {module}'\n");
    }
    for (number, Run { folder, command }) in runs.into_iter().enumerate() {
        text += &format!(
            "cd {}\n\
            echo '{MARK}begin {number}'\n\
            {command}\n\
            echo \"{MARK}end {number} $?\"\n",
            folder.display(),
        );
    }
    text + &format!("echo '{MARK}done'\npoweroff -f\n")
}

/// Returns the path of a binary of the workspace in the guest. It has a number, because the
/// binaries of several packages have one name, such as `kernel`.
pub(super) fn binary(number: usize) -> String {
    format!("/binaries/{number}")
}

fn busybox() -> Result<PathBuf> {
    tools::find("busybox").context("busybox is not installed")
}

/// Returns the names of all iptables programs: tests run both variants, and the name without a
/// variant, which proxies call.
fn iptables() -> impl Iterator<Item = String> {
    ["iptables", "ip6tables"].into_iter().flat_map(|family| {
        ["", "-legacy", "-nft"]
            .into_iter()
            .flat_map(move |variant| {
                ["", "-save", "-restore"].map(|verb| format!("{family}{variant}{verb}"))
            })
    })
}

/// Returns the content of a program without debug information, which would take the guest's
/// memory.
fn stripped(program: &Path, cache: &Path) -> Result<Vec<u8>> {
    let file = cache.join("stripped");
    execute(Command::new("strip").arg("-o").arg(&file).arg(program))?;
    let bytes = fs::read(&file)?;
    fs::remove_file(&file)?;
    Ok(bytes)
}

/// Tells whether a program needs libraries: busybox of the package busybox does, that of
/// busybox-static does not.
fn is_dynamic(program: &Path) -> Result<bool> {
    let output = Command::new("ldd").arg(program).output()?;
    Ok(output.status.success())
}

/// Returns the shared libraries that programs and libraries are linked with.
fn libraries(files: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
    let mut command = Command::new("ldd");
    let output = command.args(files).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "ldd: {}", output.status);
    linked(str::from_utf8(&output.stdout)?)
}

/// Parses lines `NAME => PATH (ADDRESS)` and `PATH (ADDRESS)` of `ldd`.
fn linked(text: &str) -> Result<BTreeSet<PathBuf>> {
    let mut paths = BTreeSet::new();
    // Lines without a tab name the file to which the next lines belong.
    for line in text.lines().filter(|line| line.starts_with('\t')) {
        // Found here, with the name of the library. In the guest the program would end with 127.
        ensure!(!line.contains("not found"), "ldd: {}", line.trim());
        // `linux-vdso.so.1` is a part of the kernel and has no path.
        let path = line.split_whitespace().find(|word| word.starts_with('/'));
        paths.extend(path.map(PathBuf::from));
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_include_the_loader_and_exclude_entries_without_a_file() {
        let text = "/usr/sbin/nft:\n\
            \tlinux-vdso.so.1 (0x00007ffd)\n\
            \tlibnftables.so.1 => /lib/x86_64-linux-gnu/libnftables.so.1 (0x00007f01)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f02)\n\
            /usr/sbin/ip:\n\
            \tstatically linked\n";
        let paths = linked(text).unwrap();
        let expected = [
            "/lib/x86_64-linux-gnu/libnftables.so.1",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(paths, expected.map(PathBuf::from).into());
        assert!(linked("\tlibmnl.so.0 => not found\n").is_err());
    }

    #[test]
    fn the_init_script_loads_modules_runs_commands_and_powers_off() {
        let runs = [Run {
            folder: "/w/crates/ipvs".into(),
            command: format!("{} --exact a::b c", binary(0)),
        }];
        let text = script(Path::new("/bin/busybox"), &["ip_vs"], &runs);
        assert!(text.starts_with("#!/bin/busybox sh\n"));
        let end = "(sleep 2400; poweroff -f) &\n\
            /sbin/modprobe ip_vs || echo '@vm failed: modprobe ip_vs'\n\
            cd /w/crates/ipvs\n\
            echo '@vm begin 0'\n\
            /binaries/0 --exact a::b c\n\
            echo \"@vm end 0 $?\"\n\
            echo '@vm done'\n\
            poweroff -f\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn each_family_has_three_programs_per_iptables_variant() {
        let names: BTreeSet<String> = iptables().collect();
        assert_eq!(names.len(), 18);
        assert!(names.contains("ip6tables-legacy-restore") && names.contains("iptables"));
    }
}
