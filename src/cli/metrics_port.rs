//! `watch --prometheus 127.0.0.1:9400`: answers `GET /metrics` on a loopback port. Does not know what the metrics are.
//!
//! The smallest part of HTTP/1.1 that a scraper needs: one request a connection, whose head is bounded, within a deadline.
//! Clients that are slow or many can't keep others out: the oldest of too many connections is closed.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time;

use crate::domain::text::sanitize;
use crate::procs::listening::{self, Listening};
use crate::procs::memory::command_words;
use crate::procs::status::user_name;

/// Connections that are open at a time.
const CONNECTIONS: usize = 16;
/// How long one may take, from its first byte to its last.
const DEADLINE: Duration = Duration::from_secs(5);
/// The longest head of a request, bytes.
const HEAD: usize = 8 << 10;
/// Between two attempts when no connection can be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Characters of the command line of a process that has the port.
const COMMAND: usize = 80;
/// Ports behind one that is in use that are tried.
const TRIED: usize = 100;

/// A request for the metrics, to be answered with their text.
type Request = oneshot::Sender<String>;

/// See the module. The port is closed when it is dropped.
pub(crate) struct MetricsPort {
    address: SocketAddr,
    requests: mpsc::Receiver<Request>,
    accepting: JoinHandle<()>,
}

impl MetricsPort {
    /// Listens on a loopback address; on a port that the system chooses for port 0.
    ///
    /// # Errors
    /// The port is in use.
    pub(crate) async fn listen(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (ask, requests) = mpsc::channel(1);
        Ok(Self { address, requests, accepting: tokio::spawn(accept(listener, ask, DEADLINE)) })
    }

    /// Where the metrics are.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }

    /// The next request. Cancel-safe.
    pub(crate) async fn request(&mut self) -> Request {
        match self.requests.recv().await {
            Some(request) => request,
            None => std::future::pending().await,
        }
    }
}

impl Drop for MetricsPort {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, ask: mpsc::Sender<Request>, deadline: Duration) {
    let mut open: VecDeque<JoinHandle<()>> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // out of file descriptors
            time::sleep(PAUSE).await;
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() == CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let ask = ask.clone();
        open.push_back(tokio::spawn(async move {
            // a client that is gone or too slow misses its answer
            let _ = time::timeout(deadline, serve(stream, ask)).await;
        }));
    }
}

async fn serve(mut stream: TcpStream, ask: mpsc::Sender<Request>) -> io::Result<()> {
    let mut head = Vec::new();
    let reply = match read_head(&mut stream, &mut head).await? {
        false if head.is_empty() => return Ok(()),
        false => plain("431 Request Header Fields Too Large", "the request is too long"),
        true => answer(&head, &ask).await,
    };
    stream.write_all(reply.as_bytes()).await?;
    stream.shutdown().await?;
    // closed with bytes unread, the connection would be reset before the client has read the reply
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(())
}

/// Reads up to the empty line behind the head; `false` where that does not come.
async fn read_head(stream: &mut TcpStream, head: &mut Vec<u8>) -> io::Result<bool> {
    let mut bytes = [0; 1024];
    while head.len() < HEAD {
        let count = stream.read(&mut bytes).await?;
        if count == 0 {
            return Ok(false);
        }
        head.extend_from_slice(&bytes[..count]);
        if memchr::memmem::find(head, b"\r\n\r\n").is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn answer(head: &[u8], ask: &mpsc::Sender<Request>) -> String {
    let Some((method, path, host)) = parse(head) else {
        return plain("400 Bad Request", "not an HTTP/1.1 request");
    };
    // a page in a browser reaches this port by a name of its own
    if !host.is_none_or(is_loopback_host) {
        return plain("403 Forbidden", "not asked by a loopback address");
    }
    if !matches!(method, "GET" | "HEAD") {
        return reply(
            "405 Method Not Allowed",
            "Allow: GET, HEAD\r\n",
            "only GET and HEAD are allowed\n",
            true,
        );
    }
    if path.split('?').next() != Some("/metrics") {
        return plain("404 Not Found", "the metrics are at /metrics");
    }
    let (request, text) = oneshot::channel();
    if ask.send(request).await.is_err() {
        return plain("503 Service Unavailable", "hvtui is ending");
    }
    match text.await {
        Ok(text) => reply("200 OK", "", &text, method == "GET"),
        Err(_) => plain("503 Service Unavailable", "hvtui is ending"),
    }
}

/// Method, path and the `Host` of a request.
fn parse(head: &[u8]) -> Option<(&str, &str, Option<&str>)> {
    let mut lines = std::str::from_utf8(head).ok()?.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, path, version) = (words.next()?, words.next()?, words.next()?);
    let is_http = matches!(version, "HTTP/1.0" | "HTTP/1.1") && words.next().is_none();
    let host =
        lines.filter_map(|line| line.split_once(':')).find(|(name, _)| name.eq_ignore_ascii_case("host"));
    is_http.then_some((method, path, host.map(|(_, value)| value.trim())))
}

fn is_loopback_host(host: &str) -> bool {
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name).trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A reply of one line.
fn plain(status: &str, words: &str) -> String {
    reply(status, "", &format!("{words}\n"), true)
}

fn reply(status: &str, more: &str, text: &str, with_text: bool) -> String {
    let (size, text) = (text.len(), if with_text { text } else { "" });
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {size}\r\n\
         {more}Connection: close\r\n\r\n{text}"
    )
}

/// The address that a text names, such as `127.0.0.1:9400`, `[::1]:9400` or `localhost:9400`; `None` for the name of a file.
///
/// # Errors
/// It is an address at which other machines could connect, a port alone, or an address without a port.
pub(crate) fn address(text: &str) -> Result<Option<SocketAddr>, String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number(text) {
        return Err(format!("for a port give 127.0.0.1:{text}, for a file ./{text}"));
    }
    let name = |host: &str| {
        let within = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        within.unwrap_or(host).to_ascii_lowercase()
    };
    // a file of such a name is hardly meant
    let is_host = |host: &str| name(host) == "localhost" || name(host).parse::<IpAddr>().is_ok();
    let Some((host, port)) = text.rsplit_once(':').filter(|(host, _)| !host.contains('/')) else {
        if is_host(text) {
            return Err(format!("for a port give {text}:9400, for a file ./{text}"));
        }
        return Ok(None);
    };
    if !is_number(port) {
        if is_host(host) {
            return Err(format!("'{port}' is no TCP port; for a file give ./{text}"));
        }
        return Ok(None);
    }
    let Ok(port) = port.parse::<u16>() else {
        return Err(format!("{port} is no TCP port, they end at 65535; for a file give ./{text}"));
    };
    let name = name(host);
    let ip = if name == "localhost" {
        Some(IpAddr::V4(Ipv4Addr::LOCALHOST))
    } else {
        name.parse::<IpAddr>().ok().filter(IpAddr::is_loopback)
    };
    let ip = ip.ok_or_else(|| {
        format!(
            "the port has no authentication, so it is open to this machine alone: 127.0.0.1:{port} or [::1]:{port}; for a \
             Prometheus elsewhere forward it by `ssh -L`, or write a FILE for node_exporter's textfile collector"
        )
    })?;
    Ok(Some(SocketAddr::new(ip, port)))
}

/// Which process has an address that is in use, as far as that is seen, and a port to take instead.
pub(crate) fn taken(address: SocketAddr) -> String {
    let is_there = |one: &Listening| {
        one.port == address.port() && (one.address.is_unspecified() || one.address == address.ip())
    };
    let held = listening::all().into_iter().find(is_there).map(|one| {
        let user = user_name(one.uid);
        let Some(pid) = listening::holder(one.inode) else { return format!("a process of {user} has it; ") };
        let command = command_words(pid, COMMAND).map(|words| format!(" ({})", sanitize(&words)));
        format!("process {pid}{} of {user} has it; ", command.unwrap_or_default())
    });
    let ports = (address.port()..=u16::MAX).skip(1).take(TRIED);
    let free = ports
        .map(|port| SocketAddr::new(address.ip(), port))
        .find(|address| std::net::TcpListener::bind(address).is_ok());
    let free = free.map_or_else(|| "take another port".to_owned(), |free| format!("{free} is free"));
    held.unwrap_or_default() + &free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_loopback_address_is_a_port() {
        let ok = |text: &str| address(text).unwrap().map(|address| address.to_string());
        assert_eq!(ok("127.0.0.1:9400").as_deref(), Some("127.0.0.1:9400"));
        assert_eq!(ok("127.9.9.9:1").as_deref(), Some("127.9.9.9:1"));
        assert_eq!(ok("[::1]:9400").as_deref(), Some("[::1]:9400"));
        assert_eq!(ok("localhost:0").as_deref(), Some("127.0.0.1:0"));
        for file in ["-", "hvtui.prom", "/a:9400", "./a:9400", "a:b", "a:", "/tmp/x.prom"] {
            assert_eq!(ok(file), None, "{file}");
        }
        for other in
            ["0.0.0.0:9400", "[::]:9400", "10.0.0.1:9400", "gpu-a:9400", ":9400", "[::ffff:127.0.0.1]:1"]
        {
            let why = address(other).unwrap_err();
            assert!(why.contains("no authentication") && why.contains("ssh -L"), "{other}: {why}");
        }
        let why = address("127.0.0.1:99999").unwrap_err();
        assert_eq!(why, "99999 is no TCP port, they end at 65535; for a file give ./127.0.0.1:99999");
        assert_eq!(address("9400").unwrap_err(), "for a port give 127.0.0.1:9400, for a file ./9400");
        for (text, port) in [("127.0.0.1:9400x", "9400x"), ("LocalHost:", ""), ("[::1]:http", "http")] {
            let why = format!("'{port}' is no TCP port; for a file give ./{text}");
            assert_eq!(address(text).unwrap_err(), why);
        }
        let why = "for a port give 127.0.0.1:9400, for a file ./127.0.0.1";
        assert_eq!(address("127.0.0.1").unwrap_err(), why);
    }

    /// What the port answers to `request`.
    async fn asked(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[test]
    fn of_a_port_that_is_in_use_the_process_is_named_and_another_port() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let words = taken(address);
        assert!(words.starts_with(&format!("process {} (", std::process::id())), "{words}");
        let free = words.rsplit_once(" has it; ").and_then(|(_, rest)| rest.strip_suffix(" is free"));
        let free: SocketAddr = free.unwrap_or_else(|| panic!("{words}")).parse().unwrap();
        assert!(free.ip() == address.ip() && free.port() > address.port(), "{words}");
        // one that is not seen to be held
        drop(socket);
        assert!(taken("127.0.0.1:65535".parse().unwrap()).ends_with("take another port"));
    }

    #[tokio::test]
    async fn it_answers_what_is_right_and_refuses_the_rest() {
        let mut port = MetricsPort::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = port.address;
        assert_eq!(port.url(), format!("http://{address}/metrics"));
        tokio::spawn(async move {
            loop {
                let _ = port.request().await.send("up 1\n".to_owned());
            }
        });
        let get = |path: &str, host: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        for host in ["localhost:1", "127.0.0.1", "[::1]:9400", "[::1]"] {
            let text = asked(address, &get("/metrics", host)).await;
            assert!(
                text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nup 1\n"),
                "{host}: {text}"
            );
        }
        let head = asked(address, "HEAD /metrics?x=1 HTTP/1.0\r\n\r\n").await;
        assert!(head.contains("Content-Length: 5\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        for (status, request) in [
            ("404", get("/", "localhost")),
            ("403", get("/metrics", "evil.example")),
            ("405", "POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc".to_owned()),
            ("400", "hello\r\n\r\n".to_owned()),
            ("400", "GET /metrics HTTP/2\r\n\r\n".to_owned()),
            ("431", format!("GET /{} HTTP/1.1\r\n", "x".repeat(2 * HEAD))),
        ] {
            let text = asked(address, &request).await;
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {text}");
        }
    }

    #[tokio::test]
    async fn clients_that_say_nothing_keep_nobody_out() {
        let mut port = MetricsPort::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = port.address;
        let mut silent = Vec::new();
        for _ in 0..3 * CONNECTIONS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        tokio::spawn(async move { port.request().await.send("up 1\n".to_owned()) });
        let text = asked(address, "GET /metrics HTTP/1.1\r\n\r\n").await;
        assert!(text.ends_with("up 1\n"), "{text}");
        // too many: the oldest was closed
        assert_eq!(silent[0].read(&mut [0; 1]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_client_that_says_nothing_is_left_at_its_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(accept(listener, mpsc::channel(1).0, Duration::from_millis(50)));
        let mut silent = TcpStream::connect(address).await.unwrap();
        silent.write_all(b"GET").await.unwrap();
        assert_eq!(silent.read(&mut [0; 1]).await.unwrap(), 0);
    }
}
