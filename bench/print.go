package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Print writes a result as a line.
func Print(w io.Writer, r Result) error {
	if r.Stages != nil {
		return nil // see PrintStages
	}
	if r.Load == "idle" {
		_, err := fmt.Fprintf(w, "%-26s %.2f %% of one processor, %.0f MiB, over %.0f s\n", r.Load, r.IdlePercent, r.MemoryMiB, r.Seconds)
		return err
	}
	line := fmt.Sprintf("%-26s %8.0f /s", r.Load, r.PerSecond)
	if r.P50 > 0 {
		line += fmt.Sprintf("  p50 %8.2f ms  p99 %8.2f ms", r.P50, r.P99)
	}
	if r.CPU > 0 {
		line += fmt.Sprintf("  server %8.1f us/op", r.CPU)
	}
	if r.MemoryMiB > 0 {
		line += fmt.Sprintf("  %5.0f MiB", r.MemoryMiB)
	}
	if r.Failed > 0 {
		line += fmt.Sprintf("  FAILED %d of %d: %.160s", r.Failed, r.Failed+r.Count, cmp.Or(r.FirstError, "not seen in time"))
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// PrintStages writes the results that have stages as one table: a row a stage, a column a load, in microseconds.
func PrintStages(w io.Writer, results []Result) error {
	results = slices.DeleteFunc(slices.Clone(results), func(r Result) bool { return r.Stages == nil })
	if len(results) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\nus, one request at a time\t")
	for _, r := range results {
		fmt.Fprint(t, strings.TrimPrefix(r.Load, "stages of "), "\t")
	}
	fmt.Fprintln(t)
	for _, stage := range stageNames(results) {
		fmt.Fprint(t, stage, "\t")
		for _, r := range results {
			i := slices.IndexFunc(r.Stages, func(s Stage) bool { return s.Name == stage })
			if i < 0 {
				fmt.Fprint(t, "-\t")
			} else {
				fmt.Fprintf(t, "%.1f\t", r.Stages[i].Microseconds)
			}
		}
		fmt.Fprintln(t)
	}
	fmt.Fprint(t, "all of these\t")
	for _, r := range results {
		fmt.Fprintf(t, "%.1f\t", total(r))
	}
	fmt.Fprint(t, "\nseen by the client (p50)\t")
	for _, r := range results {
		fmt.Fprintf(t, "%.1f\t", 1000*r.P50)
	}
	fmt.Fprintln(t)
	return t.Flush()
}

func total(r Result) float64 {
	sum := 0.0
	for _, s := range r.Stages {
		sum += s.Microseconds
	}
	return sum
}

// stageNames puts the stages of all results into one order that each result's own agrees with, as far as they agree with each other.
func stageNames(results []Result) []string {
	var out []string
	for _, r := range results {
		at := 0
		for _, s := range r.Stages {
			if i := slices.Index(out, s.Name); i >= 0 {
				at = i + 1
				continue
			}
			out = slices.Insert(out, at, s.Name)
			at++
		}
	}
	return out
}
