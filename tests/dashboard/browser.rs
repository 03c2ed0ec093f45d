//! Chromium without a screen, in a profile of its own, driven through chromedriver.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fantoccini::elements::Element;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::json;
use tempfile::TempDir;

use crate::support::Gateway;

/// Nothing on a page takes this long; it only keeps a broken test from hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser; ended when dropped.
pub(crate) struct Browser {
    driver: Child,
    _profile: TempDir,
    pub(crate) client: Client,
    base: String,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The whole group: the browser, too.
        drop(Command::new("kill").args(["-KILL", "--", &format!("-{}", self.driver.id())]).status());
        drop(self.driver.wait());
    }
}

/// Lets `act` happen in a browser that shows this gateway.
pub(crate) fn browse(gateway: &Gateway, act: impl AsyncFnOnce(&Browser)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let browser = Browser::open(gateway).await;
        act(&browser).await;
    });
}

/// A driver of browsers, and its port.
fn start() -> Option<(Child, u16)> {
    let mut driver = Command::new("chromedriver")
        .arg("--port=0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("chromedriver is not there: `make setup` installs it");
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
    let on_port = |line: String| line.trim_end_matches('.').rsplit_once("successfully on port ")?.1.parse().ok();
    let Some(port) = lines.find_map(on_port) else {
        driver.wait().unwrap();
        return None;
    };
    // What it says later must not block it.
    std::thread::spawn(move || lines.for_each(drop));
    Some((driver, port))
}

impl Browser {
    async fn open(gateway: &Gateway) -> Self {
        // It takes a port of one family that somebody may have in the other one, and then it ends.
        let started = std::iter::repeat_with(start).take(5).find_map(|started| started);
        let (driver, port) = started.expect("chromedriver said five times on no port that it is there");
        let profile = tempfile::tempdir().unwrap();
        let mut arguments: Vec<String> = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--window-size=1280,900",
        ]
        .map(str::to_owned)
        .to_vec();
        arguments.push(format!("--user-data-dir={}", profile.path().display()));
        let capabilities =
            json!({ "goog:chromeOptions": { "args": arguments }, "goog:loggingPrefs": { "browser": "ALL" } });
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(capabilities.as_object().unwrap().clone());
        let client = builder.connect(&format!("http://127.0.0.1:{port}")).await.expect("Chromium does not start");
        Self { driver, _profile: profile, client, base: format!("http://{}", gateway.admin) }
    }

    /// Opens a page of the gateway.
    pub(crate) async fn open_page(&self, path: &str) {
        self.client.goto(&format!("{}{path}", self.base)).await.unwrap();
    }

    /// Where the browser is.
    pub(crate) async fn path(&self) -> String {
        let url = self.client.current_url().await.unwrap();
        url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()))
    }

    /// The element, as soon as it is there.
    pub(crate) async fn see(&self, css: &str) -> Element {
        let found = self.client.wait().at_most(PATIENCE).for_element(Locator::Css(css)).await;
        found.unwrap_or_else(|error| panic!("{css} did not appear: {error}"))
    }

    /// The element with this id, as soon as its text has that in it (or, if `has` is false, no longer has it).
    pub(crate) async fn see_text(&self, id: &str, text: &str, has: bool) -> Element {
        let contains = format!("contains(normalize-space(.), {text:?})");
        let path = format!("//*[@id='{id}'][{}]", if has { contains } else { format!("not({contains})") });
        let found = self.client.wait().at_most(PATIENCE).for_element(Locator::XPath(&path)).await;
        match found {
            Ok(element) => element,
            Err(error) => panic!("{path} did not come: {error}\n{}", self.text("#main").await),
        }
    }

    /// Presses what is there, as soon as it is; again if a live page exchanged it at that moment.
    pub(crate) async fn press(&self, css: &str) {
        loop {
            match self.see(css).await.click().await {
                Ok(()) => return,
                Err(error) if error.to_string().contains("stale") => {}
                Err(error) => panic!("{css} could not be pressed: {error}"),
            }
        }
    }

    pub(crate) async fn write(&self, css: &str, text: &str) {
        self.see(css).await.send_keys(text).await.unwrap();
    }

    /// What an element reads; again if a live page exchanged it at that moment.
    pub(crate) async fn text(&self, css: &str) -> String {
        loop {
            match self.see(css).await.text().await {
                Ok(text) => return text,
                Err(error) if error.to_string().contains("stale") => {}
                Err(error) => panic!("{css}: {error}"),
            }
        }
    }

    /// A picture of what is seen, as PNG.
    pub(crate) async fn picture(&self) -> Vec<u8> {
        self.client.screenshot().await.unwrap()
    }

    /// Signs in, and is led to the page.
    pub(crate) async fn sign_in(&self, gateway: &Gateway, path: &str) {
        self.open_page(path).await;
        self.write("#token", &gateway.token()).await;
        self.press("form button.main").await;
        self.see("nav a[aria-current]").await;
        assert_eq!(self.path().await, path, "the way back after signing in");
    }
}
