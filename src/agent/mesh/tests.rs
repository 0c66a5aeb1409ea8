//! A home folder before, with, and after a mesh.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, PrivateKey};

use super::*;
use crate::wire::mesh;

const ID: &str = "0123abcd";

fn plan() -> (MeshPlan, mesh::PrivateKey) {
    let key = PrivateKey::random(&mut russh::keys::key::safe_rng(), Algorithm::Ed25519).unwrap();
    let public = key.public_key().to_openssh().unwrap();
    let public = public.trim().to_owned();
    let plan = MeshPlan {
        id: ID.to_owned(),
        authorized: format!("restrict,pty {public} hvtui-mesh {ID}"),
        public,
        config: "Host n1\n  Port 22\n".to_owned(),
        known_hosts: "n1 ssh-ed25519 AAAA\n".to_owned(),
    };
    (plan, mesh::PrivateKey(key.to_openssh(LineEnding::LF).unwrap().to_string()))
}

/// Each file below `~/.ssh`: its content and mode.
fn files(home: &Path) -> BTreeMap<String, (Vec<u8>, u32)> {
    let entries = fs::read_dir(home.join(".ssh")).into_iter().flatten().flatten();
    let one = |entry: fs::DirEntry| {
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        (entry.file_name().to_string_lossy().into_owned(), (fs::read(entry.path()).unwrap(), mode))
    };
    entries.map(one).collect()
}

fn apply_to(home: &Path, plan: &MeshPlan, private: Option<mesh::PrivateKey>) -> MeshDone {
    match on_files(&MeshAsk::Apply(Box::new(MeshApply { plan: plan.clone(), private })), home) {
        MeshTold::Done(done) => done,
        other => panic!("{other:?}"),
    }
}

fn remove_from(home: &Path, dry: bool) -> MeshDone {
    match on_files(&MeshAsk::Remove(MeshRemove { id: ID.to_owned(), dry }), home) {
        MeshTold::Done(done) => done,
        other => panic!("{other:?}"),
    }
}

fn with_files(content: &[(&str, &str, u32)]) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let ssh = home.path().join(".ssh");
    fs::create_dir(&ssh).unwrap();
    fs::set_permissions(&ssh, PermissionsExt::from_mode(0o700)).unwrap();
    for (name, text, mode) in content {
        fs::write(ssh.join(name), text).unwrap();
        fs::set_permissions(ssh.join(name), PermissionsExt::from_mode(*mode)).unwrap();
    }
    home
}

#[test]
fn a_mesh_comes_and_goes_and_leaves_every_byte_as_it_was() {
    let (plan, private) = plan();
    let empty = tempfile::tempdir().unwrap();
    let homes = [
        empty,
        with_files(&[]),
        with_files(&[("config", "Host a\n  Port 7", 0o644), ("authorized_keys", "", 0o600)]),
        with_files(&[("authorized_keys", "ssh-ed25519 AAAA me\n\n", 0o640), ("id_rsa", "x", 0o600)]),
    ];
    for home in homes {
        let home = home.path();
        let had_folder = home.join(".ssh").exists();
        let before = files(home);
        let said = apply_to(home, &plan, None);
        assert!(said.problem.is_none() && !said.changes.is_empty(), "{said:?}");
        assert_eq!(files(home), before, "a look changes nothing");
        let done = apply_to(home, &plan, Some(private.clone()));
        assert_eq!(done, said, "what was said is what was done");
        assert!(!format!("{done:?}").contains("PRIVATE KEY"));
        let there = files(home);
        assert_eq!(there[&format!("hvtui_mesh_{ID}")], (private.0.clone().into_bytes(), 0o600));
        assert!(there["config"].0.starts_with(format!("# hvtui-mesh {ID} begin").as_bytes()));
        for (name, (_, mode)) in &before {
            assert_eq!(there[name].1, *mode, "{name}");
        }
        let found = look(home).unwrap();
        assert_eq!(found, [MeshFound { id: ID.to_owned(), public: Some(plan.public.clone()) }]);

        assert_eq!(apply_to(home, &plan, Some(private.clone())).changes, []);
        assert_eq!(files(home), there, "again is nothing new");
        let new = MeshPlan { config: "Host n1 n2\n".to_owned(), ..plan.clone() };
        assert_eq!(apply_to(home, &new, Some(private.clone())).changes.len(), 1);

        assert!(!remove_from(home, true).changes.is_empty());
        assert_eq!(files(home).len(), there.len());
        let done = remove_from(home, false);
        assert!(done.problem.is_none(), "{done:?}");
        assert_eq!(files(home), before);
        assert_eq!(home.join(".ssh").exists(), had_folder);
        assert_eq!(remove_from(home, false).changes, []);
        assert_eq!(look(home).unwrap(), []);
    }
}

#[test]
fn links_and_what_others_can_write_are_refused_and_untouched() {
    let (plan, private) = plan();
    let victim = tempfile::tempdir().unwrap();
    fs::write(victim.path().join("file"), "theirs").unwrap();
    for name in ["config", "authorized_keys", "hvtui_mesh_0123abcd", "hvtui_mesh_0123abcd.conf"] {
        let home = with_files(&[]);
        symlink(victim.path().join("file"), home.path().join(".ssh").join(name)).unwrap();
        let done = apply_to(home.path(), &plan, Some(private.clone()));
        assert!(done.problem.as_ref().is_some_and(|why| why.contains("symbolic link")), "{name}: {done:?}");
    }
    let home = tempfile::tempdir().unwrap();
    symlink(victim.path(), home.path().join(".ssh")).unwrap();
    let done = apply_to(home.path(), &plan, Some(private.clone()));
    assert!(done.problem.as_ref().is_some_and(|why| why.contains("~/.ssh is a symbolic link")), "{done:?}");
    assert_eq!(fs::read_to_string(victim.path().join("file")).unwrap(), "theirs");
    assert_eq!(fs::read_dir(victim.path()).unwrap().count(), 1);

    let home = with_files(&[("config", "Host a\n", 0o666)]);
    let done = apply_to(home.path(), &plan, Some(private));
    assert!(done.problem.as_ref().is_some_and(|why| why.contains("writable by others")), "{done:?}");
}

#[test]
fn an_id_that_is_a_path_is_refused() {
    let (plan, private) = plan();
    let home = with_files(&[]);
    for id in ["../../x1", "", "0123ABCD", "0123abcd/x"] {
        let done =
            apply_to(home.path(), &MeshPlan { id: id.to_owned(), ..plan.clone() }, Some(private.clone()));
        assert!(done.problem.is_some(), "{id}");
    }
    assert!(files(home.path()).is_empty());
}

#[test]
fn two_at_once_write_whole_files() {
    let home = with_files(&[("config", "Host a\n", 0o600)]);
    let (plan, private) = plan();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(apply_to(home.path(), &plan, Some(private.clone())).problem.is_none()));
        }
    });
    let config = files(home.path())["config"].0.clone();
    assert_eq!(String::from_utf8(config).unwrap().matches("begin").count(), 1);
    assert_eq!(files(home.path()).len(), 5);
}
