package simulate

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// tallied is how many pods of one workload are told one by one.
const tallied = 24

// Print writes a report for people to read.
func Print(w io.Writer, r *Report) error {
	out := &printer{to: w}
	out.table = tabwriter.NewWriter(&out.text, 0, 0, 2, ' ', 0)
	out.placements(r.Pods)
	out.section("Moved", "POD\tFROM\tTO", r.Moved, func(p Placement) string { return p.Pod + "\t" + p.From + "\t" + or(p.Node) })
	out.section("Evicted", "POD\tFROM\tFOR\tTO", r.Evicted, func(p Placement) string { return p.Pod + "\t" + p.From + "\t" + p.For + "\t" + or(p.Node) })
	out.section("Waiting in the cluster", "POD\tNODE\tEVICTS", r.Waiting, func(p Placement) string { return p.Pod + "\t" + or(p.Node) + "\t" + strings.Join(p.Evicts, ", ") })
	out.reasons(slices.Concat(r.Pods, r.Moved, r.Evicted, r.Waiting))
	if f := r.Fit; f != nil {
		out.line("\n%d more pods of %s fit.", f.More, f.Workload)
		if f.Why != "" {
			out.line("The next one does not: %s", f.Why)
		}
	}
	if n := r.Nodes; n != nil {
		switch {
		case n.Enough && n.Added == 0:
			out.line("\nNo more nodes are needed.")
		case n.Enough:
			out.line("\n%d more %s like %s: then all pods have a place.", n.Added, plural(n.Added, "node"), n.Like)
		case n.Added == 0:
			out.line("\nMore nodes like %s help none of the pods without a place.", n.Like)
		default:
			out.line("\n%d more %s like %s: then some pods still have no place, and another such node helps none of them.", n.Added, plural(n.Added, "node"), n.Like)
		}
	}
	for k, note := range r.Notes {
		if k == 0 {
			out.line("")
		}
		out.line("Note: %s", note)
	}
	return out.end()
}

type printer struct {
	to    io.Writer
	text  bytes.Buffer // of the table so far
	table *tabwriter.Writer
	any   bool // something was written
	err   error
}

// line adds to the table; a line feed in front parts it from what was before.
func (p *printer) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !p.any {
		text = strings.TrimPrefix(text, "\n")
	}
	p.any = true
	fmt.Fprintln(p.table, text)
}

// flush ends a table, so that what follows does not widen its columns.
func (p *printer) flush() {
	p.table.Flush()
	for line := range strings.Lines(p.text.String()) {
		if _, err := io.WriteString(p.to, strings.TrimRight(line, " \n")+"\n"); err != nil && p.err == nil {
			p.err = err
		}
	}
	p.text.Reset()
}

func (p *printer) end() error {
	p.flush()
	return p.err
}

func or(node string) string {
	if node == "" {
		return "-"
	}
	return node
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// placements tells of pods one by one; of the pods of a large workload, how many go where.
func (p *printer) placements(list []Placement) {
	if len(list) == 0 {
		return
	}
	size := map[string]int{}
	for _, one := range list {
		size[one.Workload]++
	}
	p.line("POD\tNODE\tEVICTS")
	for k := 0; k < len(list); {
		one := list[k]
		if size[one.Workload] <= tallied {
			p.line("%s\t%s\t%s", one.Pod, or(one.Node), strings.Join(one.Evicts, ", "))
			k++
			continue
		}
		end := k
		for end < len(list) && list[end].Workload == one.Workload {
			end++
		}
		p.tally(list[k:end])
		k = end
	}
	p.flush()
}

func (p *printer) tally(list []Placement) {
	pods, evicts := map[string]int{}, map[string]int{}
	for _, one := range list {
		pods[one.Node]++
		evicts[one.Node] += len(one.Evicts)
	}
	var nodes []string
	for name := range pods {
		nodes = append(nodes, name)
	}
	slices.Sort(nodes)
	for _, name := range nodes {
		evicted := ""
		if n := evicts[name]; n > 0 {
			evicted = fmt.Sprintf("%d %s", n, plural(n, "pod"))
		}
		p.line("%d of %s\t%s\t%s", pods[name], list[0].Workload, or(name), evicted)
	}
}

func (p *printer) section(title, head string, list []Placement, row func(Placement) string) {
	if len(list) == 0 {
		return
	}
	p.line("\n%s:", title)
	p.flush()
	p.line("%s", head)
	for _, one := range list {
		p.line("%s", row(one))
	}
	p.flush()
}

// reasons tells why pods have no node, or what is to be known about the one that they have: each reason once.
func (p *printer) reasons(list []Placement) {
	var order []string
	who := map[string][]string{}
	for _, one := range list {
		why := cmp.Or(one.Why, one.Note)
		if why == "" {
			continue
		}
		if who[why] == nil {
			order = append(order, why)
		}
		if !slices.Contains(who[why], one.Pod) {
			who[why] = append(who[why], one.Pod)
		}
	}
	for _, why := range order {
		pods := who[why]
		if n := len(pods); n > 3 {
			pods = append(pods[:2:2], fmt.Sprintf("%d more", n-2))
		}
		p.line("\n%s:\n  %s", strings.Join(pods, ", "), why)
	}
}
