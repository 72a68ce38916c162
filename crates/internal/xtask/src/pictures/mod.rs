//! Pictures of the documentation, rendered from text files in `docs`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::cargo::root;

mod diagram;

mod svg;

mod terminal;

/// A function that renders the text of a file as SVG.
type Render = fn(&str) -> Result<String>;

/// Names of the text files in `docs` without extension, and their renderers.
const PICTURES: [(&str, Render); 2] = [("data-path", diagram::render), ("demo", terminal::render)];

/// Renders all pictures and writes them beside their text files.
pub(crate) fn write() -> Result<()> {
    for (name, render) in PICTURES {
        let path = path(name, "svg");
        fs::write(&path, rendered(name, render)?)
            .with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

fn rendered(name: &str, render: Render) -> Result<String> {
    let path = path(name, "txt");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    render(&text).with_context(|| format!("render {}", path.display()))
}

fn path(name: &str, extension: &str) -> PathBuf {
    root().join("docs").join(name).with_extension(extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_equal_the_rendering_of_their_text_files() {
        for (name, render) in PICTURES {
            testkit::golden::compare(path(name, "svg"), &rendered(name, render).unwrap());
        }
    }
}
