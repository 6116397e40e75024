package job

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// indexes is a set of completion indexes. As text, in a Job's status, it is "1,3-5,7".
type indexes map[int]bool

// parseIndexes reads the text and drops what is not below completions, as after completions was lowered.
func parseIndexes(text string, completions int) indexes {
	out := indexes{}
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, err1 := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil {
			continue
		}
		for i := max(from, 0); i <= to && i < completions; i++ {
			out[i] = true
		}
	}
	return out
}

func (s indexes) String() string {
	var b strings.Builder
	sorted := slices.Sorted(maps.Keys(s))
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		switch j - i {
		case 0:
			fmt.Fprint(&b, sorted[i])
		case 1:
			fmt.Fprintf(&b, "%d,%d", sorted[i], sorted[j])
		default:
			fmt.Fprintf(&b, "%d-%d", sorted[i], sorted[j])
		}
		i = j + 1
	}
	return b.String()
}
