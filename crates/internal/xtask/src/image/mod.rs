//! Writes OCI images of kube-proxy without a container engine.
//!
//! An image has a layer for the certificate authorities of the system, optionally one
//! for the programs of iptables, and one for the statically linked program.
//! The same commit, system and options produce the same digests.

use std::path::PathBuf;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use testkit::privilege::become_root;
use testkit::scoped::Directory;

use crate::binaries::Artifacts;
use crate::cargo::{Metadata, metadata};
use crate::tools;

use self::files::Files;
use self::iptables::Variant;
use self::layout::{Layer, Layout};
use self::rootfs::Image;
use self::settings::{PROGRAM, Settings};

mod files;

mod layout;

mod settings;

mod program;

mod iptables;

mod rootfs;

mod pod;

mod runtime;

mod container;

/// Certificate authorities, for API servers with a public certificate.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Bit of CAP_NET_ADMIN, the file capability of the program. Without it, users other than
/// root lose the capabilities of the container.
const NET_ADMIN: u32 = 1 << 12;

/// Path of the program in upstream's image, which kubeadm's DaemonSet names.
const UPSTREAM_PROGRAM: &str = "usr/local/bin/kube-proxy";

/// Options of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// File of the image: an OCI archive if the name ends in `.tar`, otherwise a folder
    /// [default: target/image/kube-proxy.tar, or kube-proxy-iptables.tar].
    #[arg(long)]
    output: Option<PathBuf>,
    /// Name of the image, with a tag [default: localhost/kube-proxy:VERSION].
    #[arg(long)]
    name: Option<String>,
    /// Adds the programs of iptables. Modes iptables and ipvs need them on nodes with the
    /// legacy variant, or without `CONFIG_NFT_COMPAT`.
    #[arg(long, value_name = "VARIANT")]
    iptables: Option<Variant>,
    /// Cargo profile of the program.
    #[arg(long, default_value = "image")]
    profile: String,
    /// Runs the DaemonSets of the repository with images of a debug build, and writes no
    /// image.
    #[arg(long, exclusive = true)]
    check: bool,
}

/// Runs the task.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.check {
        return check(&metadata()?, &program::artifacts()?);
    }
    tools::install(tools::IMAGE_TOOLS)?;
    let metadata = metadata()?;
    let stem = match options.iptables {
        Some(_) => "kube-proxy-iptables",
        None => "kube-proxy",
    };
    let name = match &options.name {
        Some(name) => name.clone(),
        None => format!("localhost/{stem}:{}", version(&metadata)?),
    };
    let settings = Settings::new(name, version(&metadata)?, options.iptables.is_some())?;
    let program = program::build(&metadata, &options.profile)?;
    let output = options.output.clone().unwrap_or_else(|| {
        let file = format!("{stem}.tar");
        metadata.target_directory.join("image").join(file)
    });
    layout(&settings, program, options.iptables)?.write(&output)?;
    println!("{}: {}", output.display(), settings.name);
    Ok(())
}

/// Runs images with crun under the restrictions of the DaemonSets until a Service
/// answers.
///
/// The program is linked as in an image, but from `built`: the crates that the tests use.
/// Is skipped in a user namespace that lacks the user of the DaemonSet, except in CI.
///
/// # Errors
///
/// If an image cannot be built, or does not serve.
pub(crate) fn check(metadata: &Metadata, built: &Artifacts) -> Result<()> {
    become_root().context("network namespaces need root or a user namespace")?;
    let settings = |has_iptables| {
        let (name, version) = ("localhost/kube-proxy:test", "test");
        Settings::new(name.to_owned(), version.to_owned(), has_iptables)
    };
    let user = pod::Pod::read("daemonset.yaml")?
        .security_context
        .run_as_user;
    if !container::has_user(user)? {
        if env::var_os("CI").is_some() {
            bail!("user {user} does not exist in this user namespace; run as root");
        }
        println!("image: skipped: user {user} does not exist in this user namespace");
        return Ok(());
    }
    tools::install(tools::IMAGE_TOOLS)?;
    let program = program::link(metadata, built)?;
    for (folder, iptables) in [("", None), ("iptables/", Some(Variant::Nft))] {
        let directory = Directory::new()?;
        let path = directory.path().join("image");
        let settings = settings(iptables.is_some())?;
        layout(&settings, program.clone(), iptables)?.write(&path)?;
        container::serve(&Image::read(&path)?, folder)
            .with_context(|| format!("run deploy/{folder}daemonset.yaml"))?;
        println!("deploy/{folder}daemonset.yaml: a Service answers over IPv4 and IPv6");
    }
    Ok(())
}

/// Returns the layout of an image with a program.
fn layout(settings: &Settings, program: Vec<u8>, iptables: Option<Variant>) -> Result<Layout> {
    let mut certificates = Files::default();
    let content = fs::read(CERTIFICATES).context(CERTIFICATES)?;
    certificates.add(CERTIFICATES.trim_start_matches('/'), content);
    let mut layers = vec![Layer {
        purpose: "certificate authorities".to_owned(),
        files: certificates,
    }];
    if let Some(variant) = iptables {
        layers.push(Layer {
            purpose: "programs of iptables".to_owned(),
            files: iptables::files(variant)?,
        });
    }
    let mut files = Files::default();
    files.add_program(PROGRAM.trim_start_matches('/'), program, NET_ADMIN);
    files.add_link(UPSTREAM_PROGRAM, PROGRAM);
    layers.push(Layer {
        purpose: "kube-proxy".to_owned(),
        files,
    });
    Layout::new(settings, &layers)
}

/// Returns the version of kube-proxy.
fn version(metadata: &Metadata) -> Result<String> {
    let mut packages = metadata.packages.iter();
    let package = packages.find(|package| package.name == "kube-proxy");
    Ok(package.context("no package kube-proxy")?.version.clone())
}
