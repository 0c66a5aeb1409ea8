//! What the page needs of HTML: escapes, and the colours of its charts in light and dark. Nothing is loaded, nothing runs.

use std::borrow::Cow;

/// Text as HTML shows it, in elements and in attributes; control characters are made visible.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    let text = crate::domain::text::sanitize(text);
    if !text.contains(['&', '<', '>', '"', '\'']) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    Cow::Owned(out)
}

/// Styles of the page. The phases have the colours of the screens (Okabe and Ito, safe for the colour-blind).
pub(super) const STYLE: &str = "\
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#667;--grid:#d8dbe0;--card:#f5f6f8}
@media(prefers-color-scheme:dark){:root{--bg:#14171c;--fg:#e4e7eb;--dim:#9aa3ad;--grid:#333a44;--card:#1d2127}}
body{margin:0 auto;max-width:860px;padding:24px;background:var(--bg);color:var(--fg);font:15px/1.45 system-ui,sans-serif}
h1{font-size:22px;margin:0}h2{font-size:17px;margin:28px 0 8px}p{margin:4px 0}.dim{color:var(--dim)}
ol{background:var(--card);border-radius:8px;padding:12px 12px 12px 34px}li{margin:6px 0}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:3px 8px;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}
th:first-child,td:first-child{text-align:left}th{color:var(--dim);font-weight:500}
.wide{overflow-x:auto}.facts td{text-align:left;white-space:normal;overflow-wrap:anywhere}
svg{width:100%;height:auto;display:block}svg text{fill:var(--dim);font-size:11px}
.start{text-anchor:start}.mid{text-anchor:middle}.end{text-anchor:end}
.grid{stroke:var(--grid);stroke-width:1}.line{fill:none;stroke-width:1.6;stroke-linejoin:round}
.legend span{margin-right:14px;color:var(--dim)}.legend i{display:inline-block;width:11px;height:11px;margin-right:5px;border-radius:2px}
path.c0{stroke:#0072b2}path.c1{stroke:#e69f00}path.c2{stroke:#d55e00}path.c3{stroke:#009e73}path.c4{stroke:#cc79a7}path.c5{stroke:#56b4e9}path.c6{stroke:#a08b00}path.c7{stroke:#888}
i.c0{background:#0072b2}i.c1{background:#e69f00}i.c2{background:#d55e00}i.c3{background:#009e73}i.c4{background:#cc79a7}i.c5{background:#56b4e9}i.c6{background:#a08b00}i.c7{background:#888}
.p0{fill:#f0e442;background:#f0e442}.p1{fill:#56b4e9;background:#56b4e9}.p2{fill:#0072b2;background:#0072b2}.p3{fill:#d55e00;background:#d55e00}
.p4{fill:#e69f00;background:#e69f00}.p5{fill:#009e73;background:#009e73}.p6{fill:#8a8f98;background:#8a8f98}
.late{fill:#d55e00;background:#d55e00}.early{fill:#0072b2;background:#0072b2}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_becomes_markup() {
        assert_eq!(escaped("<b a=\"x\">'&'</b>"), "&lt;b a=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/b&gt;");
        assert_eq!(escaped("a\u{1b}[31m"), "a␛[31m");
        assert_eq!(escaped("plain"), "plain");
    }
}
