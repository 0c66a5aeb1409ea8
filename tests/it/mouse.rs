//! The mouse on what stands on the screen: footer, title, the Launch form, the palette and other things that lie over it.

use crate::common::world::{Story, training};
use crate::screens::{COLOR, text};
use hvtui::domain::host::LinkState;
use hvtui::tui::core::{Effect, Key, Mouse, MouseKind, Msg, Screen};
use hvtui::tui::screens::launch::Field;
use hvtui::tui::screens::model::Overlay;

fn press(story: &mut Story, keys: &str) -> Vec<Effect> {
    keys.chars().flat_map(|c| story.send(Msg::Key(Key::char(c)))).collect()
}

fn mouse(story: &mut Story, kind: MouseKind, (column, row): (u16, u16)) -> Vec<Effect> {
    story.send(Msg::Mouse(Mouse { kind, column, row }))
}

/// Where words stand on the screen: column and row.
fn place(story: &Story, words: &str) -> (u16, u16) {
    let screen = text(&story.model, COLOR);
    let found = screen.lines().enumerate().find_map(|(row, line)| {
        let at = line.find(words)?;
        Some((line[..at].chars().count() as u16, row as u16))
    });
    found.unwrap_or_else(|| panic!("{words} on\n{screen}"))
}

fn click(story: &mut Story, words: &str) -> Vec<Effect> {
    let at = place(story, words);
    mouse(story, MouseKind::Click, at)
}

#[test]
fn a_click_on_a_key_of_the_footer_is_that_key() {
    for demo in [false, true] {
        let mut story = training();
        story.model.demo = demo;
        press(&mut story, "1");
        click(&mut story, "help");
        assert_eq!(story.model.ui.overlay, Overlay::Help(0), "its word");
        press(&mut story, "x");
        click(&mut story, "? help");
        assert_eq!(story.model.ui.overlay, Overlay::Help(0), "its key");
        press(&mut story, "x");
        assert_eq!(click(&mut story, "q quit"), [Effect::Quit]);
        let (column, row) = place(&story, "q quit");
        assert_eq!(mouse(&mut story, MouseKind::Click, (column - 1, row)), [], "between two keys");
    }
}

#[test]
fn a_click_on_the_alerts_of_the_title_opens_the_events() {
    let mut story = training();
    story.link("gpu-b", LinkState::Down { reason: "gone".to_owned(), retry_at: None });
    story.wait_ms(31_000);
    for key in ["1", "3", "1u"] {
        press(&mut story, key);
        let from = story.model.ui.screen;
        let (column, row) = place(&story, "▲ ");
        assert_eq!(row, 0, "{from:?}");
        mouse(&mut story, MouseKind::Click, (column + 2, row));
        assert_eq!(story.model.ui.screen, Screen::Events, "{from:?}");
        let at = place(&story, "▲ ");
        mouse(&mut story, MouseKind::Click, at);
        assert_eq!(story.model.ui.screen, Screen::Events, "it is open");
    }
}

#[test]
fn a_click_on_a_field_of_the_form_goes_there() {
    let mut story = training();
    press(&mut story, "1l");
    assert_eq!(story.model.ui.launch.focus, Field::Command);
    for (words, field) in [("ranks", Field::Ranks), ("command", Field::Command), ("kind", Field::Kind)] {
        click(&mut story, words);
        assert_eq!(story.model.ui.launch.focus, field, "{words}");
    }
    // a field that says nothing stands in one line with others until then
    click(&mut story, "image –");
    assert_eq!(story.model.ui.launch.focus, Field::Image);
}

#[test]
fn the_palette_is_chosen_from_with_the_mouse() {
    let mut story = training();
    press(&mut story, "1:theme");
    let on = |story: &Story| match &story.model.ui.overlay {
        Overlay::Palette(palette) => palette.on,
        other => panic!("{other:?}"),
    };
    mouse(&mut story, MouseKind::WheelDown, (30, 5));
    assert_eq!(on(&story), 1);
    mouse(&mut story, MouseKind::WheelUp, (30, 5));
    assert_eq!(on(&story), 0);
    let at = place(&story, "theme contrast");
    assert_eq!(mouse(&mut story, MouseKind::Click, at), []);
    assert_ne!(on(&story), 0);
    let (column, row) = place(&story, "choose · enter");
    mouse(&mut story, MouseKind::Click, (column, row));
    assert_ne!(on(&story), 0, "the frame is no command");
    mouse(&mut story, MouseKind::DoubleClick, at);
    assert_eq!(story.model.settings.theme.name(), "contrast");
    assert_eq!(story.model.ui.overlay, Overlay::None);
}

#[test]
fn the_wheel_scrolls_what_lies_over_the_screen() {
    let mut story = training();
    story.send(Msg::Resize(80, 24));
    press(&mut story, "?");
    mouse(&mut story, MouseKind::WheelDown, (30, 5));
    assert_eq!(story.model.ui.overlay, Overlay::Help(3));
    mouse(&mut story, MouseKind::WheelUp, (30, 5));
    assert_eq!(story.model.ui.overlay, Overlay::Help(0));
}
