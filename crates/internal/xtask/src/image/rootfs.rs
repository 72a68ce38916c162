//! Reads an image from a folder and unpacks its layers, as a container runtime does.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tar::Archive;

use super::layout::digest;

/// An image that was read from a folder.
#[derive(Debug)]
pub(super) struct Image {
    /// Image configuration.
    pub(super) config: Value,
    /// Layers as tar, in the order in which they are unpacked.
    pub(super) layers: Vec<Vec<u8>>,
}

impl Image {
    /// Reads the only image of a layout.
    ///
    /// # Errors
    ///
    /// If a file is missing, or a blob does not match its digest.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let index = fs::read(folder.join("index.json")).context("index.json")?;
        let index: Value = serde_json::from_slice(&index)?;
        let manifest = parse(folder, &index["manifests"][0])?;
        let config = parse(folder, &manifest["config"])?;
        let layers = manifest["layers"].as_array().context("no layers")?;
        let layers = layers.iter().map(|descriptor| blob(folder, descriptor));
        Ok(Self {
            config,
            layers: layers.collect::<Result<_>>()?,
        })
    }

    /// Unpacks all layers with owners, modes and file capabilities.
    ///
    /// # Errors
    ///
    /// If the process is not root, or the file system does not support file capabilities.
    pub(super) fn unpack(&self, folder: &Path) -> Result<()> {
        for layer in &self.layers {
            let mut archive = Archive::new(&layer[..]);
            archive.set_preserve_permissions(true);
            archive.set_preserve_ownerships(true);
            archive.set_unpack_xattrs(true);
            archive.unpack(folder)?;
        }
        Ok(())
    }
}

fn parse(folder: &Path, descriptor: &Value) -> Result<Value> {
    Ok(serde_json::from_slice(&blob(folder, descriptor)?)?)
}

fn blob(folder: &Path, descriptor: &Value) -> Result<Vec<u8>> {
    let name = descriptor["digest"].as_str().context("no digest")?;
    let path = folder.join("blobs").join(name.replace(':', "/"));
    let content = fs::read(&path).with_context(|| path.display().to_string())?;
    ensure!(digest(&content) == name, "{name}: the content differs");
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use testkit::scoped::Directory;

    use super::*;
    use crate::image::files::Files;
    use crate::image::layout::{Layer, Layout};
    use crate::image::settings::Settings;

    fn written() -> Directory {
        let mut files = Files::default();
        files.add_program("kube-proxy", "program", 0);
        files.add_link("usr/local/bin/kube-proxy", "/kube-proxy");
        let purpose = "program".to_owned();
        let folder = Directory::new().unwrap();
        let layout = Layout::new(&Settings::example(), &[Layer { purpose, files }]).unwrap();
        layout.write(&folder.path().join("image")).unwrap();
        folder
    }

    #[test]
    fn an_unpacked_image_has_its_files_and_links() {
        let folder = written();
        let [image, root] = ["image", "root"].map(|name| folder.path().join(name));
        let image = Image::read(&image).unwrap();
        fs::create_dir(&root).unwrap();
        image.unpack(&root).unwrap();
        let program = root.join("kube-proxy");
        assert_eq!(fs::read(&program).unwrap(), b"program");
        assert_eq!(fs::metadata(&program).unwrap().mode() & 0o7777, 0o755);
        let link = fs::read_link(root.join("usr/local/bin/kube-proxy")).unwrap();
        assert_eq!(link, Path::new("/kube-proxy"));
        assert_eq!(image.config["config"]["Entrypoint"][0], "/kube-proxy");
    }

    #[test]
    fn a_changed_blob_is_an_error() {
        let folder = written();
        let image = folder.path().join("image");
        for blob in fs::read_dir(image.join("blobs/sha256")).unwrap() {
            fs::write(blob.unwrap().path(), "{}").unwrap();
        }
        let error = Image::read(&image).unwrap_err().to_string();
        assert!(error.ends_with(": the content differs"), "{error}");
    }
}
