package why

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Print writes a report for people. Times are in zone; now is the time of the report.
func Print(out io.Writer, r Report, now time.Time, zone *time.Location) error {
	w := &writer{out: out}
	name := r.Object
	if r.Namespace != "" {
		name += " in " + r.Namespace
	}
	w.line("%s: %s", name, r.State)
	w.line("")
	w.steps(r.Steps, zone)
	w.line("")
	if len(r.Waits) == 0 {
		w.line("Nothing is waited for.")
	}
	for _, wait := range r.Waits {
		w.wait(wait, now)
	}
	for _, u := range r.Unknown {
		w.line("Not known: %s", u)
	}
	return w.err
}

// writer keeps the first error.
type writer struct {
	out io.Writer
	err error
}

func (w *writer) line(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.out, format+"\n", args...)
	}
}

func (w *writer) steps(steps []Step, zone *time.Location) {
	t := tabwriter.NewWriter(w.out, 0, 8, 2, ' ', 0)
	day := ""
	for k, s := range steps {
		at := s.At.In(zone)
		if d := at.Format(time.DateOnly); d != day {
			day = d
			fmt.Fprintf(t, "%s\tAFTER\tBY\tWHAT\n", day)
		}
		took := "+" + age(s.Took)
		if k == 0 {
			took = ""
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", at.Format(time.TimeOnly), took, s.By, s.What)
	}
	if err := t.Flush(); w.err == nil {
		w.err = err
	}
}

func (w *writer) wait(x Wait, now time.Time) {
	since := ""
	if x.Since != nil && !x.Since.IsZero() {
		since = ", for " + age(now.Sub(*x.Since))
	}
	w.line("Waits for: %s%s", x.Loop, since)
	w.line("  which waits for: %s", x.For)
	for k, c := range x.Changes {
		word := "  smallest change: "
		if k > 0 {
			word = strings.Repeat(" ", len(word)-3) + "or "
		}
		w.line("%s%s", word, c)
	}
	if x.Next != "" {
		w.line("  next: %s", x.Next)
	}
}
