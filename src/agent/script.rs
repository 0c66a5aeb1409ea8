//! Whether what Python is given to run is there: a script, behind the interpreter's own options. A module may be installed anywhere.

use std::path::Path;

use crate::domain::python::{Runs, runs};
use crate::domain::run::RankSpec;
use crate::domain::text::closest;
use crate::program::{home, working_directory};

/// Names of a folder that are looked at for one that was meant.
const LOOKED_AT: usize = 1000;

/// Of a script that was not copied with its folder.
const NOT_SYNCED: &str = "the folder of --sync has it not, or .gitignore or .hvtuiignore leaves it out (`!NAME` in .hvtuiignore takes it in), or \
                          --workdir names another folder";

/// The script of a rank, or what there is in its place; `None` where it runs no script. `synced`: whether a folder was copied
/// for the run.
pub(super) fn find(rank: &RankSpec, synced: bool) -> Option<Result<&str, String>> {
    let (program, words) = rank.argv.split_first()?;
    let name = Path::new(program).file_name()?.to_str()?;
    // of other programs whose names begin so, nothing is known
    let version = name.strip_prefix("python")?;
    if !version.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let Some(Runs::Script(script)) = runs(words.iter().map(String::as_str)) else { return None };
    let folder = working_directory(rank.cwd.as_deref()).unwrap_or_else(|_| home());
    let path = folder.join(script);
    // a folder or an archive with a `__main__.py` is a script too; what may not be looked at may be there
    if path.try_exists().unwrap_or(true) {
        return Some(Ok(script));
    }
    let (place, usual) = if Path::new(script).is_absolute() {
        (String::new(), "write its path on this host, or sync its folder (--sync)")
    } else {
        let usual = if synced { NOT_SYNCED } else { "set workdir (--workdir), or sync a folder (--sync)" };
        (format!(" in {}", folder.display()), usual)
    };
    let remedy = meant(&path).map_or_else(
        || usual.to_owned(),
        |near| format!("did you mean {}?", Path::new(script).with_file_name(near).display()),
    );
    Some(Err(format!("no file {script}{place}: {remedy}")))
}

/// The file beside a path that a person most likely meant by it.
fn meant(path: &Path) -> Option<String> {
    let entries = std::fs::read_dir(path.parent()?).ok()?.take(LOOKED_AT).flatten();
    let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let alike = names.iter().filter(|name| Path::new(name).extension() == path.extension());
    closest(path.file_name()?.to_str()?, alike.map(String::as_str)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::rank_spec;

    #[test]
    fn the_script_of_python_is_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        let rank = |words: &str| RankSpec {
            argv: format!("/opt/bin/python3.12 {words}").split(' ').map(str::to_owned).collect(),
            cwd: Some(folder.path().display().to_string()),
            ..rank_spec(0)
        };
        std::fs::create_dir(folder.path().join("src")).unwrap();
        for file in ["there.py", "src/train.py", "train.sh"] {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        for words in
            ["there.py", "-u there.py", "-X dev -u there.py --lr 1", "-Wignore there.py", "-W error there.py"]
        {
            assert_eq!(find(&rank(words), false), Some(Ok("there.py")), "{words}");
        }
        let others = ["python3-coverage", "python_wrapper.sh", "./python-launch"];
        for program in others {
            let argv = [program, "missing.py"].map(str::to_owned).into();
            assert_eq!(find(&RankSpec { argv, ..rank("x") }, false), None, "{program}");
        }
        for words in ["-m", "-m pkg.train", "-u -m pkg.train x.py", "-c x.py", "-uc x.py", "-"] {
            assert_eq!(find(&rank(words), false), None, "{words}");
        }
        let missing = |words| find(&rank(words), false).unwrap().unwrap_err();
        let remedy = "set workdir (--workdir), or sync a folder (--sync)";
        for script in ["nosuch/train.py", "missing.py", "train.py"] {
            let words = format!("no file {script} in {at}: {remedy}");
            assert_eq!(find(&rank(&format!("-u {script}")), false), Some(Err(words)));
            let synced = find(&rank(script), true).unwrap().unwrap_err();
            assert_eq!(synced, format!("no file {script} in {at}: {NOT_SYNCED}"));
        }
        let absolute = format!("{at}/nosuch/train.py");
        let words = "write its path on this host, or sync its folder (--sync)";
        assert_eq!(missing(&absolute), format!("no file {absolute}: {words}"));
        assert_eq!(missing("thrre.py"), format!("no file thrre.py in {at}: did you mean there.py?"));
        assert_eq!(
            missing("src/trian.py"),
            format!("no file src/trian.py in {at}: did you mean src/train.py?")
        );
    }
}
