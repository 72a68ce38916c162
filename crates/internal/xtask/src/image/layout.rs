//! The OCI image layout: blobs by digest, an index, and a manifest with its layers.
//!
//! <https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md>

use std::path::Path;
use std::{fs, io};

use anyhow::{Context, Result, bail};
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::files::Files;
use super::settings::Settings;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Layers are not compressed, so that digests do not depend on a compressor. Tools that
/// push an image compress its layers.
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// A layer of an image.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// Purpose, as shown by `podman history`.
    pub(super) purpose: String,
    /// Files.
    pub(super) files: Files,
}

/// Files of an image layout.
#[derive(Debug)]
pub(super) struct Layout {
    files: Files,
    time: u64,
}

impl Layout {
    /// Creates the layout of an image with one manifest.
    pub(super) fn new(settings: &Settings, layers: &[Layer]) -> Result<Self> {
        let mut files = Files::default();
        let (mut descriptors, mut digests, mut history) = (Vec::new(), Vec::new(), Vec::new());
        for layer in layers {
            let content = layer.files.tar(settings.time)?;
            // The digest of an uncompressed layer is its diff ID, too.
            digests.push(digest(&content));
            history.push(json!({
                "created": settings.created(),
                "created_by": "cargo xtask image",
                "comment": layer.purpose,
            }));
            descriptors.push(add_blob(&mut files, LAYER, content));
        }
        let config = json!({
            "created": settings.created(),
            "architecture": settings.architecture,
            "os": "linux",
            "config": settings.execution(),
            "rootfs": { "type": "layers", "diff_ids": digests },
            "history": history,
        });
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": add_blob(&mut files, CONFIG, encode(&config)),
            "layers": descriptors,
            "annotations": settings.labels(),
        });
        let mut manifest = add_blob(&mut files, MANIFEST, encode(&manifest));
        manifest["annotations"] = settings.names();
        let index = json!({
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": [manifest],
        });
        files.add("index.json", encode(&index));
        files.add(
            "oci-layout",
            encode(&json!({ "imageLayoutVersion": "1.0.0" })),
        );
        let time = settings.time;
        Ok(Self { files, time })
    }

    /// Writes an OCI archive if the name ends in `.tar`, otherwise a folder. Replaces an
    /// existing image.
    ///
    /// # Errors
    ///
    /// If the folder exists and is not an image layout, or cannot be written.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let result = match path.extension() {
            Some(extension) if extension == "tar" => self.write_archive(path),
            _ => self.write_folder(path),
        };
        result.with_context(|| path.display().to_string())
    }

    fn write_archive(&self, path: &Path) -> Result<()> {
        create_parent(path)?;
        Ok(fs::write(path, self.files.tar(self.time)?)?)
    }

    fn write_folder(&self, path: &Path) -> Result<()> {
        if path.join("oci-layout").is_file() {
            fs::remove_dir_all(path)?;
        } else if path.exists() {
            bail!("the folder exists and is not an image");
        }
        self.files.each(|name, content| {
            let file = path.join(name);
            create_parent(&file)?;
            Ok(fs::write(file, content)?)
        })
    }
}

/// Returns the digest of a blob: `sha256:…`.
pub(super) fn digest(content: &[u8]) -> String {
    format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(content)))
}

/// Adds a blob and returns its descriptor.
fn add_blob(files: &mut Files, media_type: &str, content: Vec<u8>) -> Value {
    let digest = digest(&content);
    let descriptor = json!({
        "mediaType": media_type,
        "digest": digest,
        "size": content.len(),
    });
    files.add(&format!("blobs/{}", digest.replace(':', "/")), content);
    descriptor
}

/// Encodes JSON with sorted keys.
fn encode(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn create_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => fs::create_dir_all(parent),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use testkit::scoped::Directory;

    use super::super::rootfs::Image;
    use super::*;

    fn layers(program: &str) -> [Layer; 2] {
        let mut certificates = Files::default();
        certificates.add("etc/ssl/certs/ca-certificates.crt", "certificates");
        let mut files = Files::default();
        files.add_program("kube-proxy", program, 1 << 12);
        [("certificates", certificates), ("program", files)].map(|(purpose, files)| Layer {
            purpose: purpose.to_owned(),
            files,
        })
    }

    fn layout(program: &str) -> Layout {
        Layout::new(&Settings::example(), &layers(program)).unwrap()
    }

    /// Writes an image and returns its folder.
    fn written(layout: &Layout) -> Directory {
        let folder = Directory::new().unwrap();
        layout.write(&folder.path().join("image")).unwrap();
        folder
    }

    fn json(path: &Path) -> Value {
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn a_digest_is_sha256_in_lower_case() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest(b""), empty);
    }

    #[test]
    fn an_image_has_an_index_a_manifest_a_configuration_and_layers() {
        let folder = written(&layout("v1"));
        let path = folder.path().join("image");
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap();
            path.join("blobs").join(digest.replace(':', "/"))
        };
        let expected = json!({ "imageLayoutVersion": "1.0.0" });
        assert_eq!(json(&path.join("oci-layout")), expected);
        let index = json(&path.join("index.json"));
        assert_eq!(index["mediaType"], INDEX);
        assert_eq!(index["manifests"].as_array().unwrap().len(), 1);
        let names = &index["manifests"][0]["annotations"];
        assert_eq!(*names, Settings::example().names());
        let manifest = json(&blob(&index["manifests"][0]));
        assert_eq!(
            (&manifest["schemaVersion"], &manifest["mediaType"]),
            (&json!(2), &json!(MANIFEST))
        );
        let config = json(&blob(&manifest["config"]));
        assert_eq!(config["config"], Settings::example().execution());
        assert_eq!(
            (&config["os"], &config["architecture"]),
            (&json!("linux"), &json!("amd64"))
        );
        assert_eq!(config["created"], "2001-09-09T01:46:40Z");
        let layers = manifest["layers"].as_array().unwrap();
        let digests: Vec<&Value> = layers.iter().map(|layer| &layer["digest"]).collect();
        let ids: Vec<&Value> = config["rootfs"]["diff_ids"]
            .as_array()
            .unwrap()
            .iter()
            .collect();
        assert_eq!(digests, ids);
        for descriptor in layers
            .iter()
            .chain([&manifest["config"], &index["manifests"][0]])
        {
            let content = fs::read(blob(descriptor)).unwrap();
            assert_eq!(descriptor["size"], content.len());
            assert_eq!(descriptor["digest"], digest(&content));
        }
        assert_eq!(fs::read_dir(path.join("blobs/sha256")).unwrap().count(), 4);
    }

    #[test]
    fn equal_input_makes_equal_bytes() {
        let archive = |layout: &Layout| layout.files.tar(layout.time).unwrap();
        let (one, two, other) = (layout("v1"), layout("v1"), layout("v2"));
        assert_eq!(archive(&one), archive(&two));
        assert_ne!(archive(&one), archive(&other));
    }

    #[test]
    fn an_archive_has_the_files_of_the_folder() {
        let layout = layout("v1");
        let folder = written(&layout);
        let file = folder.path().join("deep/image.tar");
        layout.write(&file).unwrap();
        let tree = folder.path().join("unpacked");
        let mut archive = tar::Archive::new(fs::File::open(&file).unwrap());
        archive.unpack(&tree).unwrap();
        let [one, two] = [&tree, &folder.path().join("image")].map(|it| Image::read(it).unwrap());
        assert_eq!((one.config, one.layers), (two.config, two.layers));
    }

    #[test]
    fn an_image_is_replaced_and_another_folder_is_not() {
        let folder = written(&layout("v1"));
        let path = folder.path().join("image");
        layout("v2").write(&path).unwrap();
        assert_eq!(fs::read_dir(path.join("blobs/sha256")).unwrap().count(), 4);
        let error = layout("v2").write(folder.path()).unwrap_err();
        assert!(format!("{error:#}").ends_with(": the folder exists and is not an image"));
        assert!(path.exists());
    }
}
