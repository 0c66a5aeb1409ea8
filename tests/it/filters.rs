//! The filter of the Cluster screen and the picks that it guides, key by key.

use std::collections::BTreeMap;

use crate::common::world::{FREE, Story, busy, cluster, host, key, press, uuid};
use hvtui::domain::filter::{Filter, View};
use hvtui::domain::host::LinkState;
use hvtui::tui::core::{Key, KeyCode, Msg};
use hvtui::tui::screens::cluster::rows::{RowId, rows};
use hvtui::tui::screens::model::Overlay;

/// `f`, and how many.
fn free(story: &mut Story, count: &str) {
    press(story, "f");
    press(story, count);
    key(story, KeyCode::Enter);
}

/// Types a filter and confirms it.
fn filter(story: &mut Story, text: &str) {
    press(story, "/");
    story.send(Msg::Key(Key::ctrl('u')));
    press(story, text);
    key(story, KeyCode::Enter);
    assert_eq!(story.model.ui.overlay, Overlay::None, "{text} is a filter");
}

/// The GPUs on the list: `gpu-a 2 3 · gpu-b 1`.
fn shown(story: &Story) -> String {
    let mut hosts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows(&story.model) {
        if let RowId::Gpu(host, _, place) = row {
            hosts.entry(host.to_string()).or_default().push(place.to_string());
        }
    }
    let words: Vec<String> =
        hosts.into_iter().map(|(host, gpus)| format!("{host} {}", gpus.join(" "))).collect();
    words.join(" · ")
}

/// The picks, likewise.
fn picked(story: &Story) -> String {
    let hosts = story.model.ui.cluster.picks.iter().map(|(host, gpus)| {
        let gpus: Vec<String> = gpus.keys().map(ToString::to_string).collect();
        format!("{host} {}", gpus.join(" "))
    });
    hosts.collect::<Vec<_>>().join(" · ")
}

fn typed(story: &Story) -> String {
    match &story.model.ui.overlay {
        Overlay::Prompt(prompt) => prompt.input.value().to_owned(),
        other => panic!("a prompt was expected: {other:?}"),
    }
}

fn noticed(story: &Story) -> &str {
    story.model.ui.toasts.back().map_or("", |toast| toast.text.as_str())
}

#[test]
fn the_list_holds_what_passes() {
    let mut story = cluster();
    story.model.hosts[1].labels = vec!["ib".to_owned()];
    let expected = [
        ("free & host~a", "gpu-a 2 3 7"),
        ("free", "gpu-a 2 3 7 · gpu-b 2 3 4 5 6 7"),
        ("user==free & label==ib", "gpu-b 2 3 4 5 6 7"),
        ("idle", "gpu-a 4"),
        ("user==li | user==chen", "gpu-a 0 1 · gpu-b 0 1"),
        ("cmd~/ipykernel/ & !free", "gpu-a 4"),
        ("!ok", "gpu-a 0"),
        ("host~/^gpu-[ab]$/ & gpu<2 & mem>50%", "gpu-a 0 1 · gpu-b 0 1"),
    ];
    for (text, gpus) in expected {
        filter(&mut story, text);
        assert_eq!(shown(&story), gpus, "{text}");
    }
    filter(&mut story, "");
    assert_eq!(rows(&story.model).iter().filter(|row| matches!(row, RowId::Gpu(..))).count(), 24);
}

#[test]
fn tab_completes_and_up_brings_earlier_filters() {
    let mut story = cluster();
    press(&mut story, "/ut");
    key(&mut story, KeyCode::Tab);
    press(&mut story, ">90 & use");
    key(&mut story, KeyCode::Tab);
    press(&mut story, "==");
    key(&mut story, KeyCode::Tab);
    assert_eq!(typed(&story), "util>90 & user==free", "the first offer");
    key(&mut story, KeyCode::Tab);
    key(&mut story, KeyCode::Tab);
    assert_eq!(typed(&story), "util>90 & user==li");
    assert_eq!(shown(&story), "gpu-a 0 1", "what is completed shows at once");
    key(&mut story, KeyCode::BackTab);
    assert_eq!(typed(&story), "util>90 & user==chen");
    press(&mut story, " & hos");
    key(&mut story, KeyCode::Tab);
    press(&mut story, "~");
    key(&mut story, KeyCode::Tab);
    assert_eq!(typed(&story), "util>90 & user==chen & host~gpu-a");
    key(&mut story, KeyCode::Enter);
    filter(&mut story, "free");
    press(&mut story, "/");
    key(&mut story, KeyCode::Up);
    assert_eq!(typed(&story), "free");
    key(&mut story, KeyCode::Up);
    assert_eq!(typed(&story), "util>90 & user==chen & host~gpu-a");
    key(&mut story, KeyCode::Up);
    assert_eq!(typed(&story), "util>90 & user==chen & host~gpu-a", "there is none before it");
    key(&mut story, KeyCode::Down);
    key(&mut story, KeyCode::Down);
    assert_eq!(typed(&story), "");
    key(&mut story, KeyCode::Esc);
    assert_eq!(story.model.ui.cluster.filter_text, "free");
    // in the middle of a text
    press(&mut story, "/");
    key(&mut story, KeyCode::Home);
    press(&mut story, "hea");
    key(&mut story, KeyCode::Tab);
    assert_eq!(typed(&story), "healthfree");
}

#[test]
fn all_that_passes_is_picked_at_once() {
    let mut story = cluster();
    press(&mut story, "P");
    assert_eq!(picked(&story), "");
    assert!(noticed(&story).starts_with("no filter"), "{}", noticed(&story));
    filter(&mut story, "free & host~a");
    press(&mut story, "zP");
    assert_eq!((picked(&story).as_str(), noticed(&story)), ("gpu-a 2 3 7", "3 GPUs picked"), "folded or not");
    filter(&mut story, "gpu==2");
    press(&mut story, "P");
    assert_eq!(picked(&story), "gpu-a 2 3 7 · gpu-b 2 · gpu-c 2", "what is hidden stays picked");
    press(&mut story, "P");
    assert_eq!(picked(&story), "gpu-a 3 7", "once more drops them");
}

#[test]
fn a_range_is_picked_as_it_is_shown() {
    let mut story = cluster();
    press(&mut story, "gjvjj");
    assert_eq!(picked(&story), "", "not before space");
    press(&mut story, " ");
    assert_eq!(picked(&story), "gpu-a 0 1 2");
    press(&mut story, "jvkk ");
    assert_eq!(picked(&story), "gpu-a 0 1 2 3", "upwards, and what is picked stays");
    press(&mut story, "gjvjjj ");
    assert_eq!(picked(&story), "", "all of it was picked");
    filter(&mut story, "free");
    press(&mut story, "gvG ");
    assert_eq!(picked(&story), "gpu-a 2 3 7 · gpu-b 2 3 4 5 6 7", "over hosts, only what passes the filter");
    press(&mut story, "Uv");
    key(&mut story, KeyCode::Esc);
    assert_eq!(story.model.ui.cluster.filter_text, "free", "esc drops the range first");
    press(&mut story, " ");
    assert_eq!(picked(&story).split(' ').count(), 2, "then space picks one");
}

#[test]
fn free_ones_respect_the_filter_and_what_was_picked_by_hand() {
    let mut story = cluster();
    filter(&mut story, "host~a");
    free(&mut story, "2");
    assert_eq!((picked(&story).as_str(), noticed(&story)), ("gpu-a 2 3", "picked 2 of gpu-a (H200)"));
    free(&mut story, "9");
    assert_eq!(picked(&story), "gpu-a 2 3 7", "what f found before is found anew");
    assert_eq!(noticed(&story), "only 3 free that pass the filter of 9 asked for");
    press(&mut story, "U");
    filter(&mut story, "");
    // by hand: one of gpu-b
    let on = rows(&story.model).iter().position(|row| *row == RowId::Gpu(host("gpu-b"), uuid("gpu-b", 5), 5));
    press(&mut story, "g");
    press(&mut story, &"j".repeat(on.unwrap()));
    press(&mut story, " ");
    free(&mut story, "2");
    assert_eq!(picked(&story), "gpu-b 2 3 5", "the host of the pick is preferred, and the pick stays");
    free(&mut story, "3");
    assert_eq!(picked(&story), "gpu-b 2 3 4 5");
    free(&mut story, "8");
    assert_eq!(noticed(&story), "picked 8 on 2 hosts: 3 of gpu-a, 5 of gpu-b (H200)");
    assert_eq!(story.model.ui.cluster.picked(), 9);
}

#[test]
fn numbers_are_equal_on_several_hosts() {
    let mut story = Story::new(&["a", "b", "c"]);
    for name in ["a", "b", "c"] {
        story.gpu_host(name, 4).sample(name, 1.0, &[FREE; 4]);
    }
    free(&mut story, "6");
    assert_eq!(picked(&story), "a 0 1 2 · b 0 1 2");
    assert_eq!(noticed(&story), "picked 6 on 2 hosts, 3 each (H200)");
}

#[test]
fn picks_survive_order_folds_filters_and_a_lost_link() {
    let mut story = cluster();
    press(&mut story, "jjj  ");
    let before = picked(&story);
    assert_eq!(before, "gpu-a 2 3");
    for keys in ["s", "s", "s", "s", "z", "z", "Z", "Z"] {
        press(&mut story, keys);
        assert_eq!(picked(&story), before, "{keys}");
    }
    filter(&mut story, "host~b");
    let by_free_memory = "gpu-b 2 3 4 5 6 7 0 1";
    assert_eq!((picked(&story), shown(&story).as_str()), (before.clone(), by_free_memory));
    key(&mut story, KeyCode::Esc);
    story.down("gpu-a", "connection reset by 10.0.0.11:22");
    assert_eq!(picked(&story), before);
    story.link("gpu-a", LinkState::Connecting { to: "li@10.0.0.11:22".to_owned() });
    story.gpu_host("gpu-a", 8);
    story.sample("gpu-a", 1.0, &[busy(50, "li"); 8]).wait_ms(1000);
    assert_eq!(picked(&story), before);
    press(&mut story, "U");
    assert_eq!(picked(&story), "");
}

#[test]
fn saved_filters_are_shown_one_after_the_other() {
    let mut story = cluster();
    press(&mut story, "V");
    assert!(noticed(&story).contains("[views]"), "{}", noticed(&story));
    let view =
        |name: &str, filter: &str| View { name: name.to_owned(), filter: Filter::parse(filter).unwrap() };
    story.model.views = vec![view("idle ones", "idle"), view("free of b", "free host~b")];
    press(&mut story, "V");
    assert_eq!((shown(&story).as_str(), noticed(&story)), ("gpu-a 4", "idle ones: 1 of 24 GPUs"));
    press(&mut story, "V");
    assert_eq!(shown(&story), "gpu-b 2 3 4 5 6 7");
    assert_eq!(story.model.ui.cluster.filter_text, "free & host~b");
    press(&mut story, "V");
    assert_eq!(story.model.ui.cluster.filter_text, "", "everything behind the last one");
    press(&mut story, "/");
    key(&mut story, KeyCode::Up);
    key(&mut story, KeyCode::Up);
    assert_eq!(typed(&story), "idle", "the line offers them too");
}
