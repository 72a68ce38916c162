//! Checks the types of crates for Windows, and runs kube-proxy for Windows under Wine.
//!
//! The compilers and the sources of the standard library are those of Debian. They are
//! unpacked in the target folder, and the standard library is built from its sources.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, metadata};
use crate::process::{display, execute, execute_within};
use crate::{packages, tools};

/// Target of the checks.
const TARGET: &str = "x86_64-pc-windows-gnu";

/// Checks: packages, targets and features.
const CHECKS: &[&[&str]] = &[
    &[
        "--package=vipline-hcn",
        "--lib",
        "--examples",
        "--features=memory",
    ],
    &[
        "--package=proxy-engine",
        "--package=proxy-kernelspace",
        "--lib",
        "--examples",
    ],
    &[
        "--package=vipline-kube-source",
        "--lib",
        "--features=k8s-openapi/v1_37",
    ],
    // Without sockets.
    &[
        "--package=vipline-evaluate",
        "--package=vipline-ipset",
        "--package=vipline-iptables",
        "--package=vipline-ipvs",
        "--package=vipline-nftables",
        "--package=vipline-service-dns",
        "--package=vipline-service-ip",
        "--package=vipline-stale-flows",
        "--lib",
        "--no-default-features",
        "--features=vipline-evaluate/iptables,vipline-evaluate/ipvs,vipline-iptables/nft",
    ],
];

/// Debian packages: the compiler, its libraries, the sources of the standard library, and
/// the C compiler of crates that contain C, with the tool that creates import libraries.
const COMPILER: &str = "rustc-web";
const LIBRARIES: &str = "libstd-rust-web-dev";
const SOURCES: &str = "rust-web-src";
const C_COMPILER: &str = "gcc-mingw-w64-x86-64-win32";

/// A library that Wine 8 lacks: random bytes for the standard library.
const RANDOM: &str = "
#include <stddef.h>
int __stdcall SystemFunction036(void *buffer, unsigned long length);
__declspec(dllexport) int ProcessPrng(unsigned char *data, size_t length) {
    return SystemFunction036(data, length);
}
";

/// Maximum time for Wine to create an installation, which takes 5 s.
const WINE_LIMIT: Duration = Duration::from_secs(180);

/// Environment variable of tests with the folder of the program and its libraries.
pub(crate) const PROGRAM: &str = "VIPLINE_WINDOWS_PROGRAM";

/// Folder of shared libraries in a package.
const SHARED: &str = "usr/lib/x86_64-linux-gnu";

/// Checks all crates, and runs the program.
pub(crate) fn run() -> Result<()> {
    check()?;
    let Some(program) = program_to_run()? else {
        return Ok(());
    };
    // With the features of the workspace, which other tests have, too.
    let mut test = cargo(["test", "--workspace", "--test=windows"]);
    execute(test.env(PROGRAM, program))
}

/// Checks all crates and builds the program, or prints why that is not possible.
pub(crate) fn check() -> Result<()> {
    let target = metadata()?.target_directory;
    match fetch(&target) {
        Ok(tree) => {
            let mut checks = CHECKS.iter();
            checks
                .try_for_each(|arguments| execute(&mut check_command(&target, &tree, arguments)))?;
            build(&target, &tree)
        }
        Err(error) => {
            println!("no crate was checked for Windows: {error:#}");
            remove(&program(&target))
        }
    }
}

/// Returns the folder of the program if it can run, or prints why it cannot.
pub(crate) fn program_to_run() -> Result<Option<PathBuf>> {
    let target = metadata()?.target_directory;
    let program = program(&target);
    if !program.exists() {
        println!("kube-proxy for Windows was not built, and does not run");
        return Ok(None);
    }
    if let Err(error) = tools::install(tools::WINE).and_then(|()| try_wine(&target)) {
        println!("kube-proxy for Windows did not run: {error:#}");
        return Ok(None);
    }
    Ok(Some(program))
}

/// Checks that Wine can create an installation, which needs what a sandbox may lack.
fn try_wine(target: &Path) -> Result<()> {
    let installation = target.join("windows").join("wine");
    remove(&installation)?;
    let wine = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(Path::new("/usr/lib/wine").join(program));
        command
            .args(arguments)
            .env("WINEPREFIX", &installation)
            .env("WINEDEBUG", "-all")
            .env("WINEDLLOVERRIDES", "mscoree=;mshtml=")
            .env_remove("DISPLAY");
        execute_within(WINE_LIMIT, &mut command)
    };
    let tried = wine("wine64", &["wineboot", "-i"]).and_then(|()| wine("wineserver64", &["-w"]));
    remove(&installation)?;
    tried.context("Wine does not start")
}

/// Returns the folder of the program and its libraries.
fn program(target: &Path) -> PathBuf {
    target.join("windows").join("program")
}

/// Removes a folder, if it exists.
fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Builds the program, and the libraries that Wine lacks.
fn build(target: &Path, tree: &Path) -> Result<()> {
    let folder = program(target);
    remove(&folder)?;
    let gcc = tool(tree, "gcc-win32");
    let mut cargo = cargo_command(target, tree, "build");
    cargo.args([
        "--package=kube-proxy",
        "--bins",
        "--package=hns-dll",
        "--lib",
    ]);
    execute(&mut cargo)?;
    let draft = folder.with_file_name("program-draft");
    fs::create_dir_all(&draft)?;
    let built = out(target).join(TARGET).join("debug");
    for (from, to) in [
        ("kube-proxy.exe", "kube-proxy.exe"),
        ("hns_dll.dll", "computenetwork.dll"),
        ("hns_dll.dll", "vmcompute.dll"),
    ] {
        fs::copy(built.join(from), draft.join(to))?;
    }
    let source = draft.join("random.c");
    fs::write(&source, RANDOM)?;
    let mut compiler = Command::new(gcc);
    compiler
        .arg(&source)
        .args(["-shared", "-ladvapi32", "-o"])
        .arg(draft.join("bcryptprimitives.dll"))
        .env("LD_LIBRARY_PATH", tree.join(SHARED));
    execute(&mut compiler)?;
    Ok(fs::rename(draft, folder)?)
}

/// Returns the folder of the compilers, which are downloaded once.
///
/// # Errors
/// If apt does not offer the packages.
pub(crate) fn fetch(target: &Path) -> Result<PathBuf> {
    let folder = target.join("windows").join("compilers");
    if !folder.exists() {
        fs::create_dir_all(target.join("windows"))?;
        packages::with_fresh_lists(|| download(&folder))
            .with_context(|| format!("package {COMPILER} is unavailable"))?;
    }
    Ok(folder)
}

fn download(folder: &Path) -> Result<()> {
    let mut names = packages::with_missing_dependencies(LIBRARIES)?;
    names.extend(packages::with_missing_dependencies(C_COMPILER)?);
    names.extend([COMPILER, SOURCES].map(str::to_owned));
    packages::unpack(&names, folder, check_version)
}

/// Checks that the compiler runs, and supports the crates.
fn check_version(tree: &Path) -> Result<()> {
    let mut rustc = Command::new(tree.join("usr/bin/rustc"));
    rustc
        .arg("--version")
        .env("LD_LIBRARY_PATH", tree.join(SHARED));
    let output = rustc.output().with_context(|| display(&rustc))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {error}", display(&rustc));
    let version = String::from_utf8(output.stdout)?;
    let packages = metadata()?.packages;
    let needed = packages.iter().find_map(|it| it.rust_version.as_deref());
    let needed = needed.context("rust-version is missing")?;
    let is_supported = minor(&version) >= minor(needed);
    ensure!(is_supported, "{} is older than {needed}", version.trim());
    Ok(())
}

/// Returns the minor version in text such as `rustc 1.96.0`.
fn minor(version: &str) -> Option<u32> {
    version.split('.').nth(1)?.parse().ok()
}

/// Returns the command of a check.
fn check_command(target: &Path, tree: &Path, arguments: &[&str]) -> Command {
    let mut command = cargo_command(target, tree, "check");
    command.args(arguments);
    command
}

/// Returns a command of cargo for Windows, in which warnings are errors.
fn cargo_command(target: &Path, tree: &Path, name: &str) -> Command {
    let mut flags = OsString::from("-Cdlltool=");
    flags.push(tool(tree, "dlltool"));
    let mut command = cargo([name, "--target", TARGET, "-Zbuild-std=std,panic_abort"]);
    command
        // Unlike `--deny=warnings`, it does not apply to the standard library.
        .arg("-Zwarnings")
        .env("CARGO_BUILD_WARNINGS", "deny")
        .env("RUSTC", tree.join("usr/bin/rustc"))
        .env("CC_x86_64_pc_windows_gnu", tool(tree, "gcc-win32"))
        .env("AR_x86_64_pc_windows_gnu", tool(tree, "ar"))
        // Checks do not link. With another linker, they would build everything again.
        .env(
            "CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER",
            tool(tree, "gcc-win32"),
        )
        // Permits `-Z`.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("LD_LIBRARY_PATH", tree.join(SHARED))
        .env("RUSTFLAGS", flags)
        // The other steps use another compiler, and would build everything again.
        .env("CARGO_TARGET_DIR", out(target));
    command
}

/// Returns the folder of artifacts.
fn out(target: &Path) -> PathBuf {
    target.join("windows").join("out")
}

/// Returns a program of the C compiler and its binutils.
fn tool(tree: &Path, name: &str) -> PathBuf {
    let programs = tree.join("usr/bin");
    programs.join(format!("x86_64-w64-mingw32-{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minor_versions_are_compared_as_numbers() {
        assert_eq!(minor("rustc 1.96.0 (ac68faa20 2026-08-17)"), Some(96));
        assert_eq!(minor("1.89"), Some(89));
        assert!(minor("rustc 1.100.0") > minor("1.89"));
        assert_eq!(minor("rustc"), None);
    }
}
