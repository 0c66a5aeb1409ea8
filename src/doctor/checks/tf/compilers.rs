//! The compiler that TensorFlow was built by beside the one by which Horovod would be built for it. The library's own notes tell
//! (`.comment`): nothing is imported.

use serde::{Deserialize, Serialize};

use crate::doctor::Site;
use crate::doctor::compare::numbers;
use crate::doctor::python::Python;
use crate::domain::doctor::Verdict;

/// Since then GCC's strings and lists have another form.
const OTHER_FORM: u32 = 5;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Compilers {
    /// The GCC that TensorFlow was built by.
    own: String,
    /// The one that is here.
    here: String,
}

impl Compilers {
    /// Where Horovod is not there for this TensorFlow, and can be built. `None` where one of them is not told, or is none of GCC's.
    pub(super) fn look(site: &Site, told: &Python) -> Option<Self> {
        let is_of_tensorflow = |library: &std::path::PathBuf| {
            library.parent().and_then(|folder| folder.file_name()).is_some_and(|name| name == "tensorflow")
        };
        if told.libraries.iter().any(is_of_tensorflow) {
            return None;
        }
        let (gcc, readelf) = (site.program("gcc")?, site.program("readelf")?);
        let library = told.loads.get("tensorflow")?.to_str()?;
        let notes = site.ask(&readelf, &["-p", ".comment", library]).ok()?;
        let own = built_by(&notes.out)?;
        let here = site.ask(&gcc, &["-dumpfullversion", "-dumpversion"]).ok()?;
        Some(Self { own, here: here.out.lines().next()?.trim().to_owned() })
    }

    /// Where what one builds does not go with what the other has built.
    pub(super) fn judge(&self, version: &str) -> Option<Verdict> {
        let Self { own, here } = self;
        let ((of_own, _), (of_here, _)) = (numbers(own)?, numbers(here)?);
        let is_odd = of_here < of_own || of_own < OTHER_FORM && of_here >= OTHER_FORM;
        is_odd.then(|| {
            Verdict::look(
                format!("TensorFlow {version} was built by GCC {own}; here is GCC {here}, and Horovod is not built for it yet"),
                "a Horovod that is built here does not go with it: \"undefined symbol\" at import horovod.tensorflow",
                format!(
                    "CC=gcc-{of_own} CXX=g++-{of_own} HOROVOD_WITH_TENSORFLOW=1 python3 -m pip install --no-binary=horovod horovod, or an \
                     image that has both"
                ),
            )
        })
    }
}

/// The newest GCC in a library's notes, as `readelf` prints them: the parts of the C library in it may be of older ones. `None` where
/// Clang has had a part in it.
fn built_by(notes: &str) -> Option<String> {
    if notes.contains("clang version") {
        return None;
    }
    let version = |line: &str| {
        let (_, rest) = line.split_once("GCC: (")?;
        Some(rest.split_once(") ")?.1.split_whitespace().next()?.to_owned())
    };
    notes.lines().filter_map(version).max_by_key(|version| numbers(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_gcc_in_the_notes_has_built_it() {
        let notes = "String dump of section '.comment':\n  [     0]  GCC: (GNU) 4.8.5 20150623 (Red Hat 4.8.5-44)\n  \
                     [    2e]  GCC: (GNU) 9.3.1 20200408 (Red Hat 9.3.1-2)\n";
        assert_eq!(built_by(notes).as_deref(), Some("9.3.1"));
        assert_eq!(built_by(&format!("{notes}  [    5c]  clang version 17.0.6\n")), None);
        assert_eq!(built_by("readelf: Warning: no section"), None);
    }

    #[test]
    fn what_does_not_go_together_is_told() {
        let of = |own: &str, here: &str| {
            let (own, here) = (own.to_owned(), here.to_owned());
            Compilers { own, here }.judge("1.12.0").map(|verdict| verdict.remedy.unwrap())
        };
        assert!(
            of("4.8.5", "12.2.0").unwrap().starts_with("CC=gcc-4 CXX=g++-4 "),
            "the strings have another form"
        );
        let older = Compilers { own: "9.3.1".to_owned(), here: "7.5.0".to_owned() }.judge("1.12.0").unwrap();
        assert_eq!(
            older.evidence,
            "TensorFlow 1.12.0 was built by GCC 9.3.1; here is GCC 7.5.0, and Horovod is not built for it yet"
        );
        assert_eq!((of("9.3.1", "12.2.0"), of("4.8.5", "4.9.2")), (None, None));
    }
}
