//! Which names are copied: those that mean one file within the folder on any host, and that can be shown. Pure.

/// The link by which two trees find each other during a switch; no file of this name is copied.
pub const PEER: &str = ".hvtui-peer";

/// The longest name and path, as Linux has them.
const NAME_BYTES: usize = 255;
const PATH_BYTES: usize = 3900;

/// What is wrong with a path from the folder on; `None` for one that is copied.
pub fn path_fault(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        return Some("is an empty name");
    }
    if path.starts_with('/') {
        return Some("is an absolute path");
    }
    if path.len() > PATH_BYTES {
        return Some("is too long a path");
    }
    if path.split('/').next() == Some(PEER) {
        return Some("is a name that hvtui uses itself");
    }
    path.split('/').find_map(name_fault)
}

fn name_fault(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("has an empty name in it"),
        "." | ".." => Some("has `.` or `..` in it"),
        _ if name.len() > NAME_BYTES => Some("is too long a name"),
        _ if name.chars().any(char::is_control) => {
            Some("has a line feed or another control character in its name")
        }
        _ => None,
    }
}

/// What is wrong with the target of a symlink at `path`; `None` for one that stays within the folder wherever it lies.
///
/// `..` counts only at its beginning: behind a name it would depend on what that name leads to.
pub fn link_fault(path: &str, target: &str) -> Option<&'static str> {
    if target.is_empty() || target.len() > PATH_BYTES {
        return Some("has no usable target");
    }
    if target.chars().any(char::is_control) {
        return Some("has a line feed or another control character in its target");
    }
    if target.starts_with('/') {
        return Some("is absolute: it would lead out of the folder on a host");
    }
    let depth = path.split('/').count() - 1;
    let mut ups = 0;
    let mut is_below = false;
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." if is_below => return Some("has `..` behind a name in its target"),
            ".." => ups += 1,
            _ => is_below = true,
        }
    }
    (ups > depth).then_some("leads out of the folder")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_mean_something_else_on_a_host_are_refused() {
        let longest = "x".repeat(NAME_BYTES);
        for good in ["a", "a/b.py", ".github/x", "ü/日本", "a b", "-x", "...", "a/.hvtui-peer", &longest] {
            assert_eq!(path_fault(good), None, "{good}");
        }
        let long = "x".repeat(NAME_BYTES + 1);
        for bad in [
            "",
            "/a",
            "a//b",
            "a/",
            "..",
            "a/../b",
            "./a",
            "a\nb",
            "a\u{1b}[2J",
            "\u{7f}",
            ".hvtui-peer",
            &long,
        ] {
            assert!(path_fault(bad).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn paths_and_targets_are_as_long_as_linux_has_them() {
        let longest = "x/".repeat(PATH_BYTES / 2);
        let longest = format!("{}x", &longest[..PATH_BYTES - 1]);
        let long = format!("{longest}x");
        assert_eq!((path_fault(&longest), link_fault("l", &longest)), (None, None));
        assert_eq!(path_fault(&long), Some("is too long a path"));
        assert_eq!(link_fault("l", &long), Some("has no usable target"));
    }

    #[test]
    fn a_link_must_stay_within() {
        for (path, target) in [
            ("l", "a"),
            ("l", "./a/b"),
            ("d/l", "../a"),
            ("d/e/l", "../../a/b"),
            ("d/e/l", ".././/../a"),
            ("d/l", ".."),
        ] {
            assert_eq!(link_fault(path, target), None, "{path} -> {target}");
        }
        for (path, target) in [
            ("l", "/etc/passwd"),
            ("l", ".."),
            ("d/l", "../../a"),
            ("l", "a/../b"),
            ("d/l", "a/../b"),
            ("l", ""),
            ("l", "a\nb"),
        ] {
            assert!(link_fault(path, target).is_some(), "{path} -> {target}");
        }
    }
}
