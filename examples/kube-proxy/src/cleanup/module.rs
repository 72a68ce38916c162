//! Modules of the kernel: what is not loaded holds nothing, and need not be loaded
//! to be asked.

use std::path::Path;

/// Where the kernel shows which modules it has, those that are built in as well.
const MODULES: &str = "/sys/module";

/// Tells whether the kernel has a module now, or does not show it.
pub fn is_loaded(name: &str) -> bool {
    is_shown(Path::new(MODULES), name)
}

fn is_shown(modules: &Path, name: &str) -> bool {
    !modules.exists() || modules.join(name).exists()
}

#[cfg(test)]
mod tests {
    use testkit::leftovers::Directory;

    use super::*;

    #[test]
    fn what_is_not_shown_where_others_are_is_not_loaded() {
        let folder = Directory::new().unwrap();
        let modules = folder.path();
        std::fs::create_dir(modules.join("ip_vs")).unwrap();
        assert!(is_shown(modules, "ip_vs"));
        assert!(!is_shown(modules, "ip_set"));
        assert!(is_shown(&modules.join("absent"), "ip_set"));
    }
}
