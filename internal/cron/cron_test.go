package cron_test

import (
	"strings"
	"testing"
	"time"

	"github.com/yare-project/yare/internal/cron"
)

func TestNext(t *testing.T) {
	for _, c := range []struct{ schedule, after, want string }{
		{"*/15 * * * *", "2025-03-01T10:07:31Z", "2025-03-01T10:15:00Z"},
		{"*/15 * * * *", "2025-03-01T10:15:00Z", "2025-03-01T10:30:00Z"},
		{"0 0 29 2 *", "2025-03-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"0 0 13 * fri", "2025-03-01T00:00:00Z", "2025-03-07T00:00:00Z"}, // either day field, both are restricted
		{"0 0 * * fri", "2025-03-01T00:00:00Z", "2025-03-07T00:00:00Z"},
		{"30 9-17/4 * jan,JUN mon-fri", "2025-01-31T17:30:00Z", "2025-06-02T09:30:00Z"},
		{"59 23 31 12 ?", "2025-01-01T00:00:00Z", "2025-12-31T23:59:00Z"},
		{"@hourly", "2025-03-01T10:59:59Z", "2025-03-01T11:00:00Z"},
		{"@every 90s", "2025-03-01T10:00:00.5Z", "2025-03-01T10:01:30Z"},
		{"5/20 * * * *", "2025-03-01T10:26:00Z", "2025-03-01T10:45:00Z"},
		{"TZ=Asia/Tokyo 0 9 * * *", "2025-03-01T00:00:00Z", "2025-03-02T00:00:00Z"},
		{"0 0 30 2 *", "2025-03-01T00:00:00Z", "0001-01-01T00:00:00Z"}, // never
	} {
		s, err := cron.Parse(c.schedule)
		if err != nil {
			t.Errorf("%s: %v", c.schedule, err)
			continue
		}
		after, _ := time.Parse(time.RFC3339, c.after)
		if got := s.Next(after).UTC().Format(time.RFC3339); got != c.want {
			t.Errorf("%s after %s: %s, want %s", c.schedule, c.after, got, c.want)
		}
	}
}

func TestDaylightSaving(t *testing.T) {
	zone, err := time.LoadLocation("America/Sao_Paulo") // midnight of 2018-11-04 does not exist
	if err != nil {
		t.Skip("no time zone data:", err)
	}
	s, err := cron.Parse("30 1 * * *")
	if err != nil {
		t.Fatal(err)
	}
	got := s.Next(time.Date(2018, 11, 3, 12, 0, 0, 0, zone))
	if want := time.Date(2018, 11, 4, 1, 30, 0, 0, zone); !got.Equal(want) {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestParseRefuses(t *testing.T) {
	for schedule, want := range map[string]string{
		"":                        "empty spec string",
		"* * * *":                 "expected exactly 5 fields, found 4",
		"* * * * * *":             "expected exactly 5 fields, found 6",
		"60 * * * *":              "above maximum (59)",
		"* * 0 * *":               "below minimum (1)",
		"* * * foo *":             "failed to parse int from foo",
		"5-1 * * * *":             "beyond end of range",
		"*/0 * * * *":             "positive number",
		"*/x * * * *":             "no step",
		"-1 * * * *":              "failed to parse int",
		", * * * *":               "is empty",
		"@sometimes":              "unrecognized descriptor: @sometimes",
		"@every x":                "failed to parse duration",
		"TZ=Nowhere/No 0 * * * *": "provided bad location Nowhere/No",
		"TZ=":                     "empty spec string",
	} {
		if _, err := cron.Parse(schedule); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", schedule, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("*/5 1-3,7 * jan sun")
	f.Add("TZ=UTC @daily")
	at := time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := cron.Parse(text)
		if err != nil {
			return
		}
		if next := s.Next(at); !next.IsZero() && !next.After(at) {
			t.Fatalf("%q fires at %s, not after %s", text, next, at)
		}
	})
}
