//! Elements of an SVG picture. Sizes are in pixels.

use std::fmt::Write;

/// Fonts that each system has.
pub(super) const SANS: &str = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif";
/// Monospaced fonts that each system has.
pub(super) const MONO: &str =
    "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', monospace";

/// A picture under construction.
pub(super) struct Svg {
    body: String,
}

/// Alignment of a text at its x coordinate.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
}

impl Svg {
    /// Starts a picture with a title for screen readers and a style sheet.
    pub(super) fn new([width, height]: [u32; 2], title: &str, style: &str) -> Self {
        let title = escaped(title);
        let body = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{title}</title>\n\
             <style>\n{style}</style>\n"
        );
        Self { body }
    }

    /// Adds a rectangle with rounded corners.
    pub(super) fn rect(&mut self, class: &str, [x, y, width, height]: [u32; 4], radius: u32) {
        self.add(&format!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{radius}\"/>"
        ));
    }

    /// Adds a circle.
    pub(super) fn circle(&mut self, color: &str, [x, y]: [u32; 2], radius: u32) {
        self.add(&format!(
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"{color}\"/>"
        ));
    }

    /// Adds a line through points, with an arrow head at its end.
    pub(super) fn arrow(&mut self, class: &str, points: &[[u32; 2]]) {
        let mut path = String::new();
        for (index, [x, y]) in points.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            // Writing to a String cannot fail.
            let _ = write!(path, "{command}{x} {y}");
        }
        self.add(&format!("<path class=\"{class}\" d=\"{path}\"/>"));
        if let [.., from, to] = points {
            self.head(class, *from, *to);
        }
    }

    /// Adds an arrow head at `to`, in the direction from `from`.
    fn head(&mut self, class: &str, from: [u32; 2], to: [u32; 2]) {
        const LENGTH: i64 = 9;
        const HALF_WIDTH: i64 = 5;
        let [from, to] = [from, to].map(|point| point.map(i64::from));
        let [dx, dy] = [(to[0] - from[0]).signum(), (to[1] - from[1]).signum()];
        let base = [to[0] - dx * LENGTH, to[1] - dy * LENGTH];
        let side = |sign: i64| {
            let [x, y] = [
                base[0] + sign * dy * HALF_WIDTH,
                base[1] + sign * dx * HALF_WIDTH,
            ];
            format!("L{x} {y}")
        };
        let [x, y] = to;
        self.add(&format!(
            "<path class=\"head-{class}\" d=\"M{x} {y}{}{}Z\"/>",
            side(1),
            side(-1)
        ));
    }

    /// Adds a line of text. `y` is its baseline.
    pub(super) fn text(&mut self, class: &str, [x, y]: [u32; 2], anchor: Anchor, text: &str) {
        if text.is_empty() {
            return;
        }
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
        };
        let text = escaped(text);
        self.add(&format!(
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\"{anchor}>{text}</text>"
        ));
    }

    /// Adds a line of text that reads upwards. `x` is its baseline.
    pub(super) fn upward_text(&mut self, class: &str, [x, y]: [u32; 2], text: &str) {
        let text = escaped(text);
        self.add(&format!(
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 {x} {y})\">{text}</text>"
        ));
    }

    /// Returns the picture.
    pub(super) fn finish(self) -> String {
        self.body + "</svg>\n"
    }

    fn add(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
