//! The bytes of requests and answers: as much of HTTP/1.1 as the ranks' client speaks. Pure, and bounded whatever comes.
//!
//! That client compares `Content-Length` letter by letter, and takes an answer without it for one that ends with the
//! first bytes that arrive. So the name is written just so, and an answer is one piece of memory for one write.

/// The longest request line with all headers.
pub const HEAD: usize = 8 << 10;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// A key's value.
    Get,
    /// To keep a value.
    Put,
    /// To count a rank as done.
    Delete,
}

/// One whole request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What is asked.
    pub method: Method,
    /// The first part of the path.
    pub scope: String,
    /// The second one.
    pub key: String,
    /// What came with it.
    pub body: Vec<u8>,
    /// Whether the client asks that the connection stays.
    pub keep_alive: bool,
}

/// How a request was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// 200
    Ok,
    /// 400: it is no request, or its path has not exactly two parts.
    BadRequest,
    /// 404: the key has no value yet.
    NotFound,
    /// 405: it is none of GET, PUT and DELETE.
    BadMethod,
    /// 408: it did not come in time.
    Timeout,
    /// 411: a PUT without a length.
    NoLength,
    /// 413: the value is longer than any may be.
    TooLong,
    /// 431: its head is longer than any may be.
    LongHead,
    /// 501: a body in pieces.
    Encoding,
    /// 507: as much is kept as may be.
    Full,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::BadMethod => "405 Method Not Allowed",
            Self::Timeout => "408 Request Timeout",
            Self::NoLength => "411 Length Required",
            Self::TooLong => "413 Content Too Large",
            Self::LongHead => "431 Request Header Fields Too Large",
            Self::Encoding => "501 Not Implemented",
            Self::Full => "507 Insufficient Storage",
        }
    }
}

/// An answer: head and body in one piece.
pub fn response(status: Status, body: &[u8], keep_alive: bool) -> Vec<u8> {
    let connection = if keep_alive { "keep-alive" } else { "close" };
    let (line, length) = (status.line(), body.len());
    let head = format!("HTTP/1.1 {line}\r\nContent-Length: {length}\r\nConnection: {connection}\r\n\r\n");
    let mut bytes = Vec::with_capacity(head.len() + length);
    bytes.extend_from_slice(head.as_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Reads the requests of one connection as its bytes come.
#[derive(Debug)]
pub struct Parser {
    bytes: Vec<u8>,
    /// The head of the request whose body is still coming, without its body, and how long that is.
    head: Option<(Request, usize)>,
    longest: usize,
}

impl Parser {
    /// For bodies of at most `longest` bytes.
    pub fn new(longest: usize) -> Self {
        Self { bytes: Vec::new(), head: None, longest }
    }

    /// Takes what came. To be followed by [`Parser::next_request`] until that has no more: only so is what is held bounded.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole request, `None` while it is not. After an error the connection is of no more use.
    pub fn next_request(&mut self) -> Result<Option<Request>, Status> {
        if self.head.is_none() {
            let Some(end) = find(&self.bytes, b"\r\n\r\n") else {
                return if self.bytes.len() > HEAD { Err(Status::LongHead) } else { Ok(None) };
            };
            if end > HEAD {
                return Err(Status::LongHead);
            }
            self.head = Some(head(&self.bytes[..end], self.longest)?);
            self.bytes.drain(..end + 4);
        }
        match self.head.take() {
            Some((mut request, length)) if self.bytes.len() >= length => {
                let rest = self.bytes.split_off(length);
                request.body = std::mem::replace(&mut self.bytes, rest);
                Ok(Some(request))
            }
            waiting => {
                self.head = waiting;
                Ok(None)
            }
        }
    }

    /// Whether nothing has come of a next request.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.head.is_none()
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// The request that a head announces, and the length of its body.
fn head(bytes: &[u8], longest: usize) -> Result<(Request, usize), Status> {
    let text = std::str::from_utf8(bytes).map_err(|_| Status::BadRequest)?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, path, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(path), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (method, path, version, words.next())
    else {
        return Err(Status::BadRequest);
    };
    let method = match method {
        "GET" => Method::Get,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        _ => return Err(Status::BadMethod),
    };
    let (scope, key) = two_parts(path).ok_or(Status::BadRequest)?;
    let (mut length, mut keep_alive) = (None, false);
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(Status::BadRequest)?;
        let value = value.trim_matches([' ', '\t']);
        if name.eq_ignore_ascii_case("content-length") {
            let said = digits(value).ok_or(Status::BadRequest)?;
            if length.is_some_and(|before| before != said) {
                return Err(Status::BadRequest);
            }
            length = Some(said);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(Status::Encoding);
        } else if name.eq_ignore_ascii_case("connection") {
            keep_alive = value.split(',').any(|word| word.trim().eq_ignore_ascii_case("keep-alive"));
        }
    }
    let length = match (method, length) {
        (Method::Put, None) => return Err(Status::NoLength),
        (_, length) => length.unwrap_or(0),
    };
    if length > longest as u64 {
        return Err(Status::TooLong);
    }
    let request = Request { method, scope, key, body: Vec::new(), keep_alive };
    Ok((request, usize::try_from(length).map_err(|_| Status::TooLong)?))
}

/// Scope and key of `/scope/key`, which are taken as they are: the client encodes nothing.
fn two_parts(path: &str) -> Option<(String, String)> {
    let (scope, key) = path.strip_prefix('/')?.split_once('/')?;
    let plain = |part: &str| !part.is_empty() && !part.contains(|c: char| c == '/' || c.is_control());
    (plain(scope) && plain(key)).then(|| (scope.to_owned(), key.to_owned()))
}

/// A length: digits alone, where `parse` would take a sign. One that no number holds is as good as the largest.
fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(bytes: &[u8]) -> Result<Option<Request>, Status> {
        let mut parser = Parser::new(64);
        parser.push(bytes);
        parser.next_request()
    }

    #[test]
    fn the_clients_own_bytes_are_understood_however_they_are_cut() {
        let put =
            b"PUT /global/rank_0 HTTP/1.1\r\nHost: 10.0.0.1\r\nContent-Length: 5\r\n\r\ngpu\r\n".as_slice();
        let wanted = Request {
            method: Method::Put,
            scope: "global".to_owned(),
            key: "rank_0".to_owned(),
            body: b"gpu\r\n".to_vec(),
            keep_alive: false,
        };
        for cut in 0..put.len() {
            let mut parser = Parser::new(64);
            parser.push(&put[..cut]);
            assert_eq!(parser.next_request(), Ok(None), "after {cut} bytes");
            assert_eq!(parser.is_empty(), cut == 0);
            parser.push(&put[cut..]);
            assert_eq!(parser.next_request(), Ok(Some(wanted.clone())), "cut at {cut}");
            assert!(parser.is_empty());
        }
    }

    #[test]
    fn header_names_are_taken_in_any_case_and_requests_may_follow_each_other() {
        let mut parser = Parser::new(64);
        parser.push(b"PUT /s/k HTTP/1.1\r\ncontent-LENGTH:2\r\nCONNECTION: Keep-Alive\r\n\r\nab");
        parser.push(b"GET /local_a.b-c/1 HTTP/1.0\r\nContent-Length: 0\r\n\r\nDEL");
        let first = parser.next_request().unwrap().unwrap();
        assert!(first.keep_alive && first.body == b"ab");
        let second = parser.next_request().unwrap().unwrap();
        assert_eq!(
            (second.method, second.scope.as_str(), second.keep_alive),
            (Method::Get, "local_a.b-c", false)
        );
        assert_eq!(parser.next_request(), Ok(None));
        parser.push(b"ETE /s/1 HTTP/1.1\r\n\r\n");
        assert_eq!(parser.next_request().unwrap().unwrap().method, Method::Delete);
    }

    #[test]
    fn what_is_no_request_is_told_apart() {
        let status = |text: &str| parse(text.as_bytes()).unwrap_err();
        for path in ["/", "/a", "/a/", "//k", "/a/b/c", "a/b", "http://h/a/b", "/a/b\u{7f}", "/a/\0"] {
            assert_eq!(status(&format!("GET {path} HTTP/1.1\r\n\r\n")), Status::BadRequest, "{path:?}");
        }
        for line in ["", "GET", "GET /a/b", "GET /a/b HTTP/2", "GET  /a/b HTTP/1.1", "GET /a/b HTTP/1.1 x"] {
            assert_eq!(status(&format!("{line}\r\n\r\n")), Status::BadRequest, "{line:?}");
        }
        assert_eq!(status("POST /a/b HTTP/1.1\r\n\r\n"), Status::BadMethod);
        assert_eq!(status("PUT /a/b HTTP/1.1\r\n\r\n"), Status::NoLength);
        let with = |header: &str| status(&format!("PUT /a/b HTTP/1.1\r\n{header}\r\n\r\n"));
        assert_eq!(with("no colon"), Status::BadRequest);
        for length in ["", "-1", "+1", "1 2", "0x10", "1\r\nContent-Length: 2"] {
            assert_eq!(with(&format!("Content-Length: {length}")), Status::BadRequest, "{length}");
        }
        for length in ["65", "18446744073709551615", "99999999999999999999999"] {
            assert_eq!(with(&format!("Content-Length: {length}")), Status::TooLong, "{length}");
        }
        assert_eq!(with("Transfer-Encoding: chunked"), Status::Encoding);
        assert_eq!(parse(b"GET /\xff/b HTTP/1.1\r\n\r\n"), Err(Status::BadRequest));
    }

    #[test]
    fn a_head_that_never_ends_is_refused_before_it_fills_the_memory() {
        let mut parser = Parser::new(64);
        parser.push(b"GET /a/b HTTP/1.1\r\n");
        let mut pushed = 0;
        while parser.next_request() == Ok(None) {
            parser.push(&[b'x'; 1024]);
            pushed += 1024;
        }
        assert_eq!((parser.next_request(), pushed), (Err(Status::LongHead), HEAD));
        let long = format!("GET /a/b HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(HEAD));
        assert_eq!(parse(long.as_bytes()), Err(Status::LongHead));
    }

    #[test]
    fn an_answer_is_one_piece_with_the_length_as_the_client_spells_it() {
        let bytes = response(Status::Ok, b"0123456789", false);
        assert_eq!(bytes, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\n0123456789");
        let absent = response(Status::NotFound, b"", true);
        assert_eq!(absent, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n");
    }

    proptest! {
        #[test]
        fn nothing_that_comes_makes_it_panic(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..16)) {
            let mut parser = Parser::new(64);
            for piece in pieces {
                parser.push(&piece);
                while let Ok(Some(_)) = parser.next_request() {}
            }
        }
    }
}
