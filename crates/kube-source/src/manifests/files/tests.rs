//! Tests with changing files in directories.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use vipline_service_model::Event;

use super::*;

/// A temporary directory, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("vipline-manifests-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name).join("m");
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(self.0.parent().unwrap()).unwrap();
    }
}

fn service(name: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, \
         spec: {{clusterIP: 10.0.0.1, ports: [{{port: 80}}]}}}}\n"
    )
}

fn lines(update: Update) -> Vec<String> {
    let event = |event: &Event| match event {
        Event::ServiceApplied(service) => format!("+{}", service.metadata.name),
        Event::ServiceDeleted(name) => format!("-{}", name.name),
        other => panic!("{other:?}"),
    };
    let errors = update.errors.iter().map(|error| error.reason.to_string());
    update.events.map(|it| event(&it)).chain(errors).collect()
}

fn watch(folder: &Folder) -> (Manifests, Vec<String>) {
    let (manifests, update) = Manifests::watch(&folder.0).unwrap();
    (manifests, lines(update))
}

const START: Duration = Duration::ZERO;
const LATER: Duration = Duration::from_secs(1);

#[test]
fn only_manifests_of_the_directory_itself_are_read() {
    let folder = Folder::new();
    for name in [
        "a.yaml", "b.yml", "c.json", "d.txt", ".e.yaml", "f.yaml~", "yaml",
    ] {
        folder.write(
            name,
            &service(name.trim_start_matches('.').get(..1).unwrap()),
        );
    }
    fs::create_dir(folder.0.join("g.yaml")).unwrap();
    folder.write("g.yaml/h.yaml", &service("h"));
    assert_eq!(watch(&folder).1, ["+a", "+b", "+c"]);
    let (_, update) = Manifests::load(&folder.0.join("d.txt")).unwrap();
    assert_eq!(
        lines(update),
        ["+d"],
        "a file that is named is read whatever its name"
    );
}

#[test]
fn written_moved_linked_and_removed_files_are_detected() {
    let folder = Folder::new();
    let (mut manifests, none) = watch(&folder);
    assert_eq!(none, [""; 0]);
    let mut poll = |now| lines(manifests.poll(now));
    assert_eq!(poll(START), [""; 0]);
    folder.write("a.yaml", &service("a"));
    assert_eq!(poll(START), ["+a"]);
    folder.write("a.yaml", &service("b"));
    assert_eq!(poll(START), [""; 0], "a may still come");
    assert_eq!(poll(LATER), ["-a", "+b"]);
    folder.write("ignored.txt", &service("c"));
    fs::rename(folder.0.join("ignored.txt"), folder.0.join("c.yaml")).unwrap();
    assert_eq!(poll(START), ["+c"]);
    let elsewhere = folder.0.parent().unwrap().join("d.yaml");
    fs::write(&elsewhere, service("d")).unwrap();
    symlink(&elsewhere, folder.0.join("d.yaml")).unwrap();
    assert_eq!(poll(START), ["+d"]);
    fs::hard_link(&elsewhere, folder.0.join("e.yaml")).unwrap();
    assert_eq!(
        poll(START),
        [format!(
            "the same object exists at {}:1:1 (document 1)",
            folder.0.join("d.yaml").display()
        )]
    );
    fs::remove_file(folder.0.join("c.yaml")).unwrap();
    assert_eq!(poll(START), [""; 0]);
    assert_eq!(poll(LATER), ["-c"]);
}

#[test]
fn a_file_that_vanishes_for_a_short_time_keeps_its_objects() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("a"));
    let (mut manifests, _) = watch(&folder);
    let (file, backup) = (folder.0.join("a.yaml"), folder.0.join("a.yaml~"));
    fs::rename(&file, &backup).unwrap();
    assert_eq!(lines(manifests.poll(START)), [""; 0]);
    assert_eq!(manifests.next_deadline(), Some(GRACE));
    fs::write(&file, service("a") + "---\n" + &service("b")).unwrap();
    assert_eq!(lines(manifests.poll(Duration::from_millis(5))), ["+b"]);
    assert_eq!(manifests.next_deadline(), None);
    fs::rename(&file, folder.0.join("z.yaml")).unwrap();
    assert_eq!(lines(manifests.poll(START)), [""; 0]);
    assert_eq!(
        lines(manifests.poll(LATER)),
        [""; 0],
        "a renamed file is no change"
    );
    assert!(manifests.holds(&Key::new(vipline_service_model::Kind::Service, "", "b")));
}

#[test]
fn a_file_that_is_read_while_it_is_written_keeps_its_objects() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("a"));
    let (mut manifests, _) = watch(&folder);
    for half in ["", "{apiVersion: v1, kind: Serv", "{apiVersion: v1}"] {
        folder.write("a.yaml", half);
        assert_eq!(lines(manifests.poll(START)), [""; 0], "{half}");
        folder.write("a.yaml", &service("a"));
        assert_eq!(lines(manifests.poll(START)), [""; 0], "{half}");
        assert_eq!(manifests.next_deadline(), None);
    }
    folder.write("a.yaml", "{apiVersion: v1}");
    assert_eq!(lines(manifests.poll(START)), [""; 0]);
    assert_eq!(lines(manifests.poll(START)), [""; 0]);
    assert_eq!(lines(manifests.poll(LATER)), ["missing"], "it stays broken");
}

#[test]
fn an_update_of_a_config_map_is_one_change() {
    let folder = Folder::new();
    let version = |number: u32, names: &[&str]| {
        let path = folder.0.join(format!("..version-{number}"));
        fs::create_dir(&path).unwrap();
        for name in names {
            fs::write(path.join("web.yaml"), service(name)).unwrap();
        }
        path
    };
    symlink(version(1, &["a"]), folder.0.join("..data")).unwrap();
    symlink("..data/web.yaml", folder.0.join("web.yaml")).unwrap();
    let (mut manifests, first) = watch(&folder);
    assert_eq!(first, ["+a"]);
    symlink(version(2, &["b"]), folder.0.join("..data_tmp")).unwrap();
    assert_eq!(lines(manifests.poll(START)), [""; 0]);
    fs::rename(folder.0.join("..data_tmp"), folder.0.join("..data")).unwrap();
    assert_eq!(lines(manifests.poll(START)), [""; 0], "a may still come");
    assert_eq!(lines(manifests.poll(LATER)), ["-a", "+b"]);
    let (mut single, first) = Manifests::watch(&folder.0.join("web.yaml")).unwrap();
    assert_eq!(lines(first), ["+b"]);
    symlink(version(3, &["c"]), folder.0.join("..data_tmp")).unwrap();
    fs::rename(folder.0.join("..data_tmp"), folder.0.join("..data")).unwrap();
    assert_eq!(lines(single.poll(START)), [""; 0]);
    assert_eq!(lines(single.poll(LATER)), ["-b", "+c"]);
}

#[test]
fn a_replaced_directory_is_read_again() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("a"));
    let (mut manifests, _) = watch(&folder);
    let (old, new) = (
        folder.0.with_file_name("old"),
        folder.0.with_file_name("new"),
    );
    fs::create_dir(&new).unwrap();
    fs::write(new.join("b.yaml"), service("b")).unwrap();
    fs::rename(&folder.0, &old).unwrap();
    let lost = lines(manifests.poll(START));
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert!(lost[0].contains("No such file"), "{lost:?}");
    fs::rename(&new, &folder.0).unwrap();
    assert_eq!(
        lines(manifests.poll(START)),
        [""; 0],
        "a.yaml may still come"
    );
    assert_eq!(lines(manifests.poll(LATER)), ["-a", "+b"]);
    folder.write("c.yaml", &service("c"));
    assert_eq!(lines(manifests.poll(LATER)), ["+c"]);
}

#[test]
fn a_file_that_becomes_readable_is_read() {
    let folder = Folder::new();
    fs::write(folder.0.join("a.yaml"), b"\xff").unwrap();
    let (mut manifests, broken) = watch(&folder);
    assert_eq!(broken, ["not UTF-8 text: invalid byte at offset 0"]);
    let file = folder.0.join("a.yaml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(
        lines(manifests.poll(START)),
        [""; 0],
        "the same error is reported once"
    );
    fs::write(&file, service("a")).unwrap();
    assert_eq!(lines(manifests.poll(START)), ["+a"]);
}
