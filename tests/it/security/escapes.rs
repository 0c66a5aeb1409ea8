//! Texts that drive a terminal, or lie about what stands on it: every family of control sequence at least once.

/// None of these may reach a terminal as it is.
pub(crate) const ESCAPES: &[&str] = &[
    // operating system commands: title, colours, links, clipboard, notification, shell marks, pictures
    "\u{1b}]0;title\u{7}",
    "\u{1b}]1;icon\u{7}",
    "\u{1b}]2;title\u{1b}\\",
    "\u{1b}]4;1;?\u{7}",
    "\u{1b}]7;file:///etc\u{7}",
    "\u{1b}]8;;http://x\u{7}link\u{1b}]8;;\u{7}",
    "\u{1b}]9;note\u{7}",
    "\u{1b}]10;?\u{7}",
    "\u{1b}]11;?\u{7}",
    "\u{1b}]52;c;cm0gLXJm\u{7}",
    "\u{1b}]52;c;?\u{7}",
    "\u{1b}]104\u{7}",
    "\u{1b}]133;A\u{7}",
    "\u{1b}]777;notify;a;b\u{7}",
    "\u{1b}]1337;File=:AAAA\u{7}",
    "\u{1b}]unended",
    // device control, application, privacy and string messages
    "\u{1b}P$q\"p\u{1b}\\",
    "\u{1b}P+q544e\u{1b}\\",
    "\u{1b}Pq#0;2;0;0;0~\u{1b}\\",
    "\u{1b}_Ga=q\u{1b}\\",
    "\u{1b}^pm\u{1b}\\",
    "\u{1b}Xsos\u{1b}\\",
    "\u{1b}P",
    // control sequences: reports, erasing, moving, modes, style
    "\u{1b}[6n",
    "\u{1b}[5n",
    "\u{1b}[c",
    "\u{1b}[>c",
    "\u{1b}[>q",
    "\u{1b}[21t",
    "\u{1b}[14t",
    "\u{1b}[20t",
    "\u{1b}[2J",
    "\u{1b}[3J",
    "\u{1b}[H",
    "\u{1b}[1;1H",
    "\u{1b}[A\u{1b}[2K",
    "\u{1b}[?1049h",
    "\u{1b}[?1049l",
    "\u{1b}[?1003h",
    "\u{1b}[?2004h",
    "\u{1b}[?25l",
    "\u{1b}[s\u{1b}[u",
    "\u{1b}[1;5r",
    "\u{1b}[31m",
    "\u{1b}[8mhidden\u{1b}[0m",
    "\u{1b}[7m",
    "\u{1b}[38;2;0;0;0m",
    "\u{1b}[!p",
    "\u{1b}[5i",
    "\u{1b}[4h",
    "\u{1b}[",
    // two-character escapes
    "\u{1b}c",
    "\u{1b}7\u{1b}8",
    "\u{1b}#8",
    "\u{1b}(0",
    "\u{1b}N",
    "\u{1b}Z",
    "\u{1b}=",
    "\u{1b}",
    // the same in eight bits
    "\u{9b}31m",
    "\u{9d}0;title\u{9c}",
    "\u{90}$q\u{9c}",
    "\u{9e}pm\u{9c}",
    "\u{9f}apc\u{9c}",
    "\u{98}sos\u{9c}",
    "\u{85}",
    "\u{84}\u{8d}",
    // single controls
    "\u{0}",
    "\u{7}",
    "\u{8}\u{8}\u{8}\u{8}over",
    "\u{b}\u{c}",
    "\u{e}\u{f}",
    "\u{7f}",
    "safe\rover",
    // text that reads otherwise than it is
    "\u{202e}gpj.exe",
    "\u{202a}a\u{202c}",
    "\u{2066}a\u{2069}",
    "\u{200e}\u{200f}",
    "\u{61c}",
    "a\u{200b}b",
    "a\u{200d}b",
    "\u{feff}",
    "\u{2060}",
    "so\u{ad}ft",
    "\u{2028}\u{2029}",
    "\u{e0041}",
    "\u{fff9}a\u{fffb}",
];

/// What a text may not hold when it goes to a terminal, line feeds apart.
pub(crate) fn drives_a_terminal(c: char) -> bool {
    c.is_control() || !hvtui::domain::text::sanitize(c.encode_utf8(&mut [0; 4])).starts_with(c)
}

#[test]
fn the_corpus_has_at_least_sixty_and_each_is_one() {
    assert!(ESCAPES.len() >= 60, "{}", ESCAPES.len());
    for text in ESCAPES {
        assert!(text.chars().any(drives_a_terminal), "{text:?}");
        assert!(!hvtui::domain::text::sanitize(text).chars().any(drives_a_terminal), "{text:?}");
    }
}
