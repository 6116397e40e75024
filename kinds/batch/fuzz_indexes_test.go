package batch

import (
	"fmt"
	"strings"
	"testing"
)

// FuzzIndexes reads the sets of indexes that a client may write in a Job: one that is taken is in order, below the number of completions, and reads
// the same when it is written out.
func FuzzIndexes(f *testing.F) {
	for _, s := range []string{"", "0", "0,2-4,9", "3-1", "1,1", "-1", "1-2-3", "2147483648", "0-99", "1,,2", "+1", "01", "1-"} {
		f.Add(s, int32(10))
		f.Add(s, int32(1<<31-1))
	}
	f.Fuzz(func(t *testing.T, text string, completions int32) {
		set, err := parseIndexes(text, completions)
		if err != nil {
			return
		}
		var out []string
		last := int32(-1)
		for _, i := range set {
			if i[0] <= last || i[1] < i[0] || i[1] >= completions {
				t.Fatalf("%q below %d has %v", text, completions, set)
			}
			last = i[1]
			if out = append(out, fmt.Sprint(i[0])); i[0] < i[1] {
				out[len(out)-1] += fmt.Sprint("-", i[1])
			}
		}
		again, err := parseIndexes(strings.Join(out, ","), completions)
		if err != nil || fmt.Sprint(again) != fmt.Sprint(set) || !set.overlaps(again) && len(set) > 0 {
			t.Errorf("%q is %v, and written out %v (%v)", text, set, again, err)
		}
	})
}
