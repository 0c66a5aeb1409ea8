//! Files and folders of this machine on the Launch screen: what may follow, which folders are listed for that, and that a
//! folder that can't be read holds up nothing.

use crate::common::world::Story;
use hvtui::tui::core::{Effect, Key, KeyCode, Msg};
use hvtui::tui::screens::Here;
use hvtui::tui::screens::launch::{Field, completion};

/// The form, open, on this machine or on another host.
fn form(is_local: bool) -> Story {
    let mut story = Story::new(&["box"]);
    story.model.hosts[0].is_local = is_local;
    story.model.here =
        Here { cwd: "/home/li/code".to_owned(), home: "/home/li".to_owned(), ..Here::default() };
    story.gpu_host("box", 2);
    story.send(Msg::Key(Key::char('l')));
    story
}

/// Types into a field; the folders that are asked for.
fn write(story: &mut Story, field: Field, text: &str) -> Vec<String> {
    story.model.ui.launch.set(field, "");
    story.model.ui.launch.untouched = false;
    story.model.ui.launch.focus = field;
    let effects = text.chars().flat_map(|c| story.send(Msg::Key(Key::char(c)))).collect::<Vec<_>>();
    let folder = |effect| if let Effect::ListFolder(path) = effect { Some(path) } else { None };
    effects.into_iter().filter_map(folder).collect()
}

fn list(story: &mut Story, path: &str, names: &[&str]) {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    story.send(Msg::FolderListed(path.to_owned(), names));
}

fn suggested(story: &Story) -> Option<String> {
    completion::suggestion(&story.model)
}

const CODE: &[&str] = &[".git/", "conf/", "data:old/", "my file.py", "test.py", "train.py", "train_ddp.py"];

#[test]
fn a_file_of_the_command_is_completed_where_its_ranks_run_here() {
    let mut story = form(true);
    assert_eq!(write(&mut story, Field::Command, "python tr"), ["/home/li/code/"], "asked for once");
    assert_eq!(suggested(&story), None, "nothing is known yet");
    list(&mut story, "/somewhere/else/", &["trap.py"]);
    assert_eq!(suggested(&story), None, "an answer to another question");
    list(&mut story, "/home/li/code/", CODE);
    assert_eq!(suggested(&story).as_deref(), Some("ain.py"));
    story.send(Msg::Key(Key::plain(KeyCode::Right)));
    assert_eq!(story.model.ui.launch.text(Field::Command), "python train.py");
    assert_eq!(suggested(&story), None, "it is whole");
    assert!(write(&mut story, Field::Command, "python train.py --config=c").is_empty(), "it is known");
    assert_eq!(suggested(&story).as_deref(), Some("onf/"));
    assert_eq!(write(&mut story, Field::Command, "python conf/a"), ["/home/li/code/conf/"]);
    list(&mut story, "/home/li/code/conf/", &["a.toml"]);
    assert_eq!(suggested(&story).as_deref(), Some(".toml"));
    for none in ["tr", "python m", "python 'tr", "python --tr", "python d", "python "] {
        write(&mut story, Field::Command, none);
        list(&mut story, "/home/li/code/", CODE);
        assert_eq!(suggested(&story), None, "{none}: a program, a name to quote, an option");
    }
    assert_eq!(write(&mut story, Field::Command, "./t"), ["/home/li/code/./"]);
    list(&mut story, "/home/li/code/./", CODE);
    assert_eq!(suggested(&story).as_deref(), Some("est.py"));
}

#[test]
fn paths_of_another_host_are_not_completed_but_those_of_a_copied_folder_are() {
    let mut story = form(false);
    assert!(write(&mut story, Field::Command, "python tr").is_empty());
    assert!(write(&mut story, Field::Workdir, "/home/li/c").is_empty());
    let asked = write(&mut story, Field::Sync, "~/co");
    assert_eq!(asked, ["/home/li/code/", "/home/li/"], "the current folder, then the home folder");
    list(&mut story, "/home/li/", &["code/", "cobol.txt"]);
    assert_eq!(suggested(&story).as_deref(), Some("de/"), "folders alone");
    assert_eq!(write(&mut story, Field::Sync, ".:/srv/co"), ["/home/li/code/"], "before the colon alone");
    assert_eq!(suggested(&story), None, "behind the colon it is a folder of the hosts");
    assert!(write(&mut story, Field::Sync, ".").is_empty(), "it has been asked for");
    story.model.ui.launch.set(Field::Workdir, "");
    assert!(write(&mut story, Field::Command, "python tr").is_empty(), "it has been asked for");
    list(&mut story, "/home/li/code/", CODE);
    assert_eq!(suggested(&story).as_deref(), Some("ain.py"), "what is copied is here");
    assert!(write(&mut story, Field::Command, "python /data/tr").is_empty(), "a path of the hosts");
}

#[test]
fn the_working_directory_is_completed_where_ranks_run_here_and_a_folder_is_read_again_later() {
    let mut story = form(true);
    assert_eq!(write(&mut story, Field::Workdir, "/srv/c"), ["/", "/srv/"]);
    list(&mut story, "/srv/", &["code/", "cover.png"]);
    assert_eq!(suggested(&story).as_deref(), Some("ode/"));
    let again = [KeyCode::Tab, KeyCode::BackTab].map(|code| story.send(Msg::Key(Key::plain(code))));
    assert_eq!(again.concat(), [Effect::ListFolder("/srv/".to_owned())]);
}
