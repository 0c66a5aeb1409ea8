use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Vec<Span> {
    super::parse(Style::default(), text)
}

fn texts(text: &str) -> String {
    parse(text).into_iter().map(|span| span.text).collect()
}

fn styled(text: &str) -> Vec<(String, Style)> {
    parse(text).into_iter().map(|span| (span.text, span.style)).collect()
}

fn fg(colour: Colour) -> Style {
    Style { fg: Some(colour), ..Style::default() }
}

#[test]
fn colours_and_weight_become_styles() {
    let plain = Style::default();
    assert_eq!(
        styled("a \u{1b}[31mred\u{1b}[0m b"),
        [("a ".into(), plain), ("red".into(), fg(Colour::Basic(1))), (" b".into(), plain)]
    );
    assert_eq!(styled("\u{1b}[1;92mx"), [("x".into(), Style { bold: true, ..fg(Colour::Basic(10)) })]);
    assert_eq!(styled("\u{1b}[38;5;208mx"), [("x".into(), fg(Colour::Indexed(208)))]);
    assert_eq!(styled("\u{1b}[38;2;1;2;3mx"), [("x".into(), fg(Colour::Rgb(1, 2, 3)))]);
    assert_eq!(styled("\u{1b}[38:2::1:2:3mx"), [("x".into(), fg(Colour::Rgb(1, 2, 3)))]);
    assert_eq!(styled("\u{1b}[4;7mx\u{1b}[24;27my")[1], ("y".into(), plain));
    assert_eq!(styled("\u{1b}[31mx\u{1b}[my")[1], ("y".into(), plain), "no parameter is 0");
    assert_eq!(styled("\u{9b}31mx"), [("x".into(), fg(Colour::Basic(1)))], "in eight bits");
    // what is no colour changes nothing
    for odd in [
        "\u{1b}[38;5m",
        "\u{1b}[38;2;1;2m",
        "\u{1b}[38;9;1m",
        "\u{1b}[999m",
        "\u{1b}[38;5;300m",
        "\u{1b}[?31m",
    ] {
        assert_eq!(styled(&format!("{odd}x")), [("x".into(), plain)], "{odd:?}");
    }
}

#[test]
fn every_other_sequence_is_left_out() {
    for sequence in [
        "\u{1b}[2K",
        "\u{1b}[A",
        "\u{1b}[?25l",
        "\u{1b}[12;5H",
        "\u{1b}]0;owned\u{7}",
        "\u{1b}]8;;http://x\u{1b}\\",
        "\u{1b}]52;c;cm0gLXJmIC8=\u{7}",
        "\u{1b}Pq#0;2;0;0;0\u{1b}\\",
        "\u{1b}(B",
        "\u{1b}c",
        "\u{1b}7",
        "\u{1b}_payload\u{1b}\\",
        "\u{9d}0;owned\u{9c}",
        "\u{8}\u{8}",
        "\u{e}",
        "\u{85}",
    ] {
        assert_eq!(texts(&format!("a{sequence}b")), "ab", "{sequence:?}");
    }
    for cut in ["\u{1b}", "\u{1b}[", "\u{1b}[3", "\u{1b}]0;ti", "\u{1b}Pq", "\u{1b}(", "\u{9b}1"] {
        assert_eq!(texts(&format!("a{cut}")), "a", "{cut:?} is not whole yet");
    }
    assert_eq!(texts("\u{1b}]0;a\u{1b}[31mb"), "b", "a string that another sequence breaks off");
    assert_eq!(texts("a\u{7}b\tc\u{202e}d"), "a␇b c·d", "single characters are marked as everywhere");
}

#[test]
fn a_colour_is_reduced_to_the_nearest_of_sixteen() {
    for (colour, basic) in [
        (Colour::Rgb(255, 0, 0), 9),
        (Colour::Rgb(128, 0, 0), 1),
        (Colour::Rgb(0, 0, 0), 0),
        (Colour::Rgb(255, 255, 255), 15),
        (Colour::Rgb(100, 100, 100), 8),
        (Colour::Indexed(208), 11),
        (Colour::Indexed(21), 12),
        (Colour::Indexed(255), 15),
        (Colour::Indexed(232), 0),
        (Colour::Basic(3), 3),
    ] {
        assert_eq!(colour.basic(), basic, "{colour:?}");
    }
}

#[test]
fn what_is_written_to_a_terminal_is_read_again() {
    let text = "a\u{1b}[1;31;104mb\u{1b}[0m\u{1b}[38;5;99mc\u{1b}[48;2;1;2;3md\u{1b}[0me\u{1b}[2;3;4;7mf";
    let spans = parse(text);
    assert_eq!(parse(&to_terminal(&spans)), spans);
}

proptest! {
    #[test]
    fn the_style_behind_a_text_is_that_of_what_follows(text in "[ab0-9;\\[m\u{1b}]{0,40}") {
        // a sequence that has begun ends where another one does
        let text = format!("{text}\u{1b}[K");
        let shown = parse(&format!("{text}x"));
        prop_assert_eq!(shown.last().map(|span| span.style), Some(Style::default().after(&text)));
    }

    #[test]
    fn nothing_but_text_is_left(text in "[\u{0}-\u{ff}\u{202e}a-z0-9;:\\[\\]m\u{1b}\u{7}]{0,60}") {
        for span in parse(&text) {
            prop_assert!(!span.text.is_empty());
            prop_assert!(!span.text.chars().any(char::is_control), "{:?}", span.text);
        }
    }

    #[test]
    fn text_without_sequences_is_what_sanitize_gives(text in "[ -~äß漢\t]{0,40}") {
        prop_assert_eq!(texts(&text), sanitize(&text).into_owned());
    }
}

#[test]
fn the_nearest_of_256_is_the_nearest() {
    const PARTS: [u8; 14] = [0, 7, 16, 47, 48, 96, 114, 115, 128, 155, 200, 238, 243, 255];
    let off = |a: (u8, u8, u8), b: (u8, u8, u8)| {
        [(a.0, b.0), (a.1, b.1), (a.2, b.2)].map(|(a, b)| u32::from(a.abs_diff(b)).pow(2)).iter().sum::<u32>()
    };
    for at in 0..PARTS.len().pow(3) {
        let [red, green, blue] = [1, 14, 196].map(|place| PARTS[at / place % 14]);
        let Colour::Indexed(found) = Colour::Rgb(red, green, blue).in_256() else { panic!("one of the 256") };
        let least = (16..=255).map(|number| off(Colour::Indexed(number).parts(), (red, green, blue))).min();
        assert_eq!(
            Some(off(Colour::Indexed(found).parts(), (red, green, blue))),
            least,
            "{red} {green} {blue}"
        );
    }
    assert_eq!(Colour::Basic(3).in_256(), Colour::Basic(3));
}
