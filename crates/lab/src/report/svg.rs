//! A plot as SVG: frame, axes with units, ticks, marks, a legend, and the stamp that says where the
//! figures come from.
//!
//! Coordinates are those of a view box of [`WIDTH`] units, which a telephone shows one to one.
//! Colours are classes of the page's style sheet, so that light and dark share the same plot.

use std::fmt::Write;

/// Width of a plot in units.
pub(super) const WIDTH: f64 = 360.0;
const TOP: f64 = 34.0;
const RIGHT: f64 = 12.0;
const BOTTOM: f64 = 40.0;
/// Width of a letter of the small font, about.
const LETTER: f64 = 5.5;
/// Height of a line of the legend.
const LINE: f64 = 12.0;
/// Events that are closer have their numbers one below the other.
const CLOSE: f64 = 12.0;

/// How values become places.
#[derive(Clone, Copy)]
pub(super) enum Scale {
    Linear,
    Log,
}

/// An axis from `min` to `max`.
#[derive(Clone)]
pub(super) struct Axis {
    pub(super) label: String,
    scale: Scale,
    min: f64,
    max: f64,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From 0 to a round number that is at least `max`.
    pub(super) fn from_zero(label: &str, max: f64) -> Axis {
        let max = if max > 0.0 { max } else { 1.0 };
        let step = round_step(max / 4.0);
        let count = (max / step).ceil() as usize;
        let tick = |number: usize| (number as f64 * step, short(number as f64 * step));
        let ticks = (0..=count).map(tick).collect();
        Axis {
            label: label.into(),
            scale: Scale::Linear,
            min: 0.0,
            max: count as f64 * step,
            ticks,
        }
    }

    /// Exactly this far, with round ticks.
    pub(super) fn exact(label: &str, max: f64) -> Axis {
        let axis = Axis::from_zero(label, max);
        let ticks = axis.ticks.into_iter().filter(|(at, _)| *at <= max * 1.0001).collect();
        Axis { max: if max > 0.0 { max } else { 1.0 }, ticks, ..axis }
    }

    /// Linear, between round numbers.
    pub(super) fn between(label: &str, (min, max): (f64, f64)) -> Axis {
        let step = round_step(((max - min) / 4.0).max(1.0));
        let (first, last) = ((min / step).floor() as i64, (max / step).ceil() as i64);
        let tick = |number: i64| (number as f64 * step, short(number as f64 * step));
        Axis::with_ticks(label, Scale::Linear, (first..=last.max(first + 1)).map(tick).collect())
    }

    /// Logarithmic, over whole decades; `name` names a power of ten.
    pub(super) fn decades(label: &str, (min, max): (f64, f64), name: fn(f64) -> String) -> Axis {
        let min = if min > 0.0 { min } else { 1.0 };
        let from = min.log10().floor() as i32;
        let to = (max.max(min).log10().ceil() as i32).max(from + 1);
        let ticks = (from..=to).map(|power| 10f64.powi(power)).map(|at| (at, name(at))).collect();
        let (min, max) = (10f64.powi(from), 10f64.powi(to));
        Axis { label: label.into(), scale: Scale::Log, min, max, ticks }
    }

    /// With these ticks, from the first to the last.
    pub(super) fn with_ticks(label: &str, scale: Scale, ticks: Vec<(f64, String)>) -> Axis {
        let min = ticks.first().map_or(0.0, |tick| tick.0);
        let max = ticks.last().map_or(1.0, |tick| tick.0);
        let max = if max > min { max } else { min + 1.0 };
        Axis { label: label.into(), scale, min, max, ticks }
    }

    /// The ends.
    pub(super) fn ends(&self) -> (f64, f64) {
        (self.min, self.max)
    }

    /// 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let place = match self.scale {
            Scale::Linear => (value - self.min) / (self.max - self.min),
            Scale::Log => (value.max(self.min) / self.min).ln() / (self.max / self.min).ln(),
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// 1, 2 or 5 times a power of ten, at least `step`.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= step * 0.999);
    factor.unwrap_or(10.0) * power
}

/// A number with at most three digits and k, M or G.
pub(super) fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        big if big >= 1e9 => (value / 1e9, "G"),
        big if big >= 1e6 => (value / 1e6, "M"),
        big if big >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        small if small >= 100.0 || small == 0.0 => 0,
        small if small >= 10.0 => 1,
        small if small >= 0.01 => 2,
        _ => 4,
    };
    let text = format!("{scaled:.digits$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    };
    format!("{text}{unit}")
}

/// Nanoseconds with a unit.
pub(super) fn span(nanos: f64) -> String {
    match nanos {
        long if long >= 1e9 => format!("{} s", short(nanos / 1e9)),
        long if long >= 1e6 => format!("{} ms", short(nanos / 1e6)),
        long if long >= 1e3 => format!("{} µs", short(nanos / 1e3)),
        _ => format!("{} ns", short(nanos)),
    }
}

/// The text with the signs of markup replaced.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            _ => escaped.push(letter),
        }
    }
    escaped
}

/// Letters of a line of a caption, and the height of the line.
const CAPTION: (usize, f64) = (72, 10.0);

/// A plot as a file: with the styles of the page, a white card, and its caption below.
pub(super) fn file(svg: &str, caption: &str) -> String {
    let (frame, body) = svg.split_once('>').unwrap_or((svg, ""));
    let height = frame.split("0 0 ").nth(1).and_then(|size| size.split([' ', '"']).nth(1));
    let height: f64 = height.and_then(|text| text.parse().ok()).unwrap_or(230.0);
    let lines = wrapped(caption, CAPTION.0);
    let all = height + 6.0 + CAPTION.1 * lines.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-6 -4 {} {}\" width=\"{}\">\n\
         <style>{} text{{font-family:system-ui,sans-serif}}</style>\n\
         <rect x=\"-6\" y=\"-4\" width=\"100%\" height=\"100%\" fill=\"var(--paper)\"/>\n{}",
        WIDTH + 12.0,
        all + 8.0,
        2.0 * (WIDTH + 12.0),
        escape(include_str!("page.css")),
        body.trim_end().trim_end_matches("</svg>"),
    );
    for (number, line) in lines.iter().enumerate() {
        let y = height + 8.0 + CAPTION.1 * number as f64;
        let _ = write!(text, "\n<text class=\"s w\" x=\"4\" y=\"{y:.1}\">{}</text>", escape(line));
    }
    text.push_str("\n</svg>\n");
    text
}

/// Width of a text in the small font; in the widest of the usual fonts, DejaVu Sans.
fn width(text: &str) -> f64 {
    let letter = |letter| match letter {
        'm' | 'w' | 'M' | 'W' | '%' | '±' => 9.3,
        'i' | 'j' | 'l' | ' ' | '.' | ',' => 3.1,
        'f' | 'r' | 't' => 4.0,
        _ => 6.1,
    };
    text.chars().map(letter).sum()
}

/// Lines of at most so many letters, broken at spaces.
fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

/// A plot being drawn.
pub(super) struct Plot {
    title: String,
    x: Axis,
    y: Axis,
    height: f64,
    top: f64,
    left: f64,
    body: String,
    /// Where events are.
    events: Vec<f64>,
    legend: Vec<(&'static str, String)>,
}

impl Plot {
    pub(super) fn new(title: &str, x: Axis, y: Axis) -> Plot {
        let longest = y.ticks.iter().map(|(_, text)| text.chars().count()).max().unwrap_or(0);
        let left = 26.0 + LETTER * longest as f64;
        Plot {
            title: title.into(),
            x,
            y,
            height: 230.0,
            top: TOP,
            left,
            body: String::new(),
            events: Vec::new(),
            legend: Vec::new(),
        }
    }

    /// With two lines for the legend. Before any mark.
    pub(super) fn with_two_lines(mut self) -> Plot {
        (self.top, self.height) = (TOP + LINE, self.height + LINE);
        self
    }

    /// Another height in units.
    pub(super) fn tall(mut self, height: f64) -> Plot {
        self.height = height;
        self
    }

    fn at_x(&self, value: f64) -> f64 {
        self.left + (WIDTH - RIGHT - self.left) * self.x.place(value)
    }

    fn at_y(&self, value: f64) -> f64 {
        let bottom = self.height - BOTTOM;
        bottom - (bottom - self.top) * self.y.place(value)
    }

    /// Names a class of marks. Nothing is named twice.
    pub(super) fn name(&mut self, class: &'static str, text: &str) {
        if !self.legend.iter().any(|(known, _)| *known == class) {
            self.legend.push((class, text.into()));
        }
    }

    /// A line through points.
    pub(super) fn line(&mut self, class: &str, points: &[(f64, f64)]) {
        let places: Vec<String> = points
            .iter()
            .map(|&(x, y)| format!("{:.1},{:.1}", self.at_x(x), self.at_y(y)))
            .collect();
        let places = places.join(" ");
        let _ = write!(self.body, "<polyline class=\"l {class}\" points=\"{places}\"/>");
    }

    /// A point with a text that appears under the pointer.
    pub(super) fn point(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let (x, y) = (self.at_x(x), self.at_y(y));
        let text = escape(text);
        let _ = write!(
            self.body,
            "<circle class=\"f {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\">\
             <title>{text}</title></circle>"
        );
    }

    /// A rectangle between two corners, with a text for the pointer.
    pub(super) fn area(&mut self, class: &str, a: (f64, f64), b: (f64, f64), text: &str) {
        let (x0, x1) = (self.at_x(a.0.min(b.0)), self.at_x(a.0.max(b.0)));
        let (y0, y1) = (self.at_y(a.1.max(b.1)), self.at_y(a.1.min(b.1)));
        let (width, height) = (x1 - x0, y1 - y0);
        if width <= 0.0 || height <= 0.0 {
            return;
        }
        let _ = write!(
            self.body,
            "<rect class=\"f {class}\" x=\"{x0:.1}\" y=\"{y0:.1}\" width=\"{width:.2}\" \
             height=\"{height:.1}\"><title>{}</title></rect>",
            escape(text)
        );
    }

    /// A polygon.
    pub(super) fn polygon(&mut self, class: &str, points: &[(f64, f64)]) {
        let places: Vec<String> = points
            .iter()
            .map(|&(x, y)| format!("{:.1},{:.1}", self.at_x(x), self.at_y(y)))
            .collect();
        let places = places.join(" ");
        let _ = write!(self.body, "<polygon class=\"f {class}\" points=\"{places}\"/>");
    }

    /// A vertical line with a short text at its top.
    pub(super) fn event(&mut self, x: f64, text: &str) {
        let (x, top, bottom) = (self.at_x(x), self.top, self.height - BOTTOM);
        let close = self.events.iter().filter(|&&other| (other - x).abs() < CLOSE).count();
        self.events.push(x);
        let _ = write!(
            self.body,
            "<line class=\"event\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
             <text class=\"s\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x + 3.0,
            top + 9.0 + 9.0 * close as f64,
            escape(text)
        );
    }

    /// The plot as an element. `stamp` says where the figures come from.
    pub(super) fn draw(self, stamp: &str) -> String {
        let (height, left, top) = (self.height, self.left, self.top);
        let (right, bottom) = (WIDTH - RIGHT, self.height - BOTTOM);
        let mut text = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{0}\">\
             <text class=\"t\" x=\"4\" y=\"12\">{0}</text>",
            escape(&self.title)
        );
        self.draw_ticks(&mut text);
        text.push_str(&self.body);
        let _ = write!(
            text,
            "<path class=\"axis\" d=\"M{left:.1} {top}V{bottom}H{right}\"/>\
             <text class=\"s e\" x=\"{right}\" y=\"{:.1}\">{}</text>\
             <text class=\"s m\" transform=\"translate(10 {:.1}) rotate(-90)\">{}</text>",
            bottom + 24.0,
            escape(&self.x.label),
            top + (bottom - top) / 2.0,
            escape(&self.y.label),
        );
        self.draw_legend(&mut text);
        let _ = write!(
            text,
            "<text class=\"s w\" x=\"4\" y=\"{:.1}\">{}</text></svg>",
            height - 4.0,
            escape(stamp)
        );
        text
    }

    fn draw_ticks(&self, text: &mut String) {
        let (right, top, bottom) = (WIDTH - RIGHT, self.top, self.height - BOTTOM);
        let mut free = f64::MIN;
        for (value, name) in &self.x.ticks {
            let x = self.at_x(*value);
            let half = LETTER * name.chars().count() as f64 / 2.0;
            if x - half < free {
                continue;
            }
            free = x + half + 4.0;
            let middle = x.min(WIDTH - half - 1.0);
            let _ = write!(
                text,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
                 <text class=\"s m\" x=\"{middle:.1}\" y=\"{:.1}\">{}</text>",
                bottom + 12.0,
                escape(name)
            );
        }
        for (value, name) in &self.y.ticks {
            let y = self.at_y(*value);
            let _ = write!(
                text,
                "<line class=\"grid\" x1=\"{:.1}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"s e\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                self.left,
                self.left - 4.0,
                y + 3.0,
                escape(name)
            );
        }
    }

    /// Above the plot, in as many lines as it needs.
    fn draw_legend(&self, text: &mut String) {
        let (mut x, mut y) = (self.left, 19.0);
        for (class, name) in &self.legend {
            let width = 18.0 + width(name);
            if x + width > WIDTH {
                (x, y) = (self.left, y + LINE);
            }
            let _ = write!(
                text,
                "<rect class=\"f {class}\" x=\"{x:.1}\" y=\"{y}\" width=\"8\" height=\"8\"/>\
                 <text class=\"s\" x=\"{:.1}\" y=\"{}\">{}</text>",
                x + 11.0,
                y + 7.5,
                escape(name)
            );
            x += width;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_axis() {
        let axis = Axis::from_zero("requests/s", 968.7);
        let names: Vec<&str> = axis.ticks.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["0", "500", "1000"]);
        let axis = Axis::decades("latency", (3e5, 2e7), span);
        let names: Vec<&str> = axis.ticks.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["100 µs", "1 ms", "10 ms", "100 ms"]);
        assert_eq!((axis.place(1e5), axis.place(1e8), axis.place(0.0)), (0.0, 1.0, 0.0));
    }

    /// As Chromium draws them in DejaVu Sans: names of a legend do not touch.
    #[test]
    fn names_of_a_legend_have_room() {
        for (name, drawn) in [("command", 47.6), ("seek", 21.9), ("rotate", 28.9), ("work", 23.7)] {
            let room = width(name);
            assert!((drawn..drawn + 6.0).contains(&room), "{name}: {room}");
        }
    }

    #[test]
    fn numbers_are_short() {
        let shorts = [0.0, 0.5, 12.34, 968.7, 1234.0, 45_678.0, 2.5e6].map(short);
        assert_eq!(shorts, ["0", "0.5", "12.3", "969", "1234", "45.7k", "2.5M"]);
        assert_eq!(span(1_500.0), "1.5 µs");
    }
}
