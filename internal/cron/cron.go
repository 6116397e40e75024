// Package cron reads the five-field schedules of cron and tells when they fire next.
//
// The fields are minute, hour, day of month, month and day of week: numbers, names of months and days (three letters), ranges, lists and
// steps; "?" means "*". @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly and @every DURATION are read too, and a leading
// TZ=ZONE or CRON_TZ=ZONE. A day must match both day fields, or either of them if both are restricted, as in every cron.
//
// A Schedule is a value and safe for concurrent use.
package cron

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Schedule is a set of times.
type Schedule struct {
	minute, hour, day, month, weekday uint64
	// anyDay and anyWeekday tell an unrestricted field, "*", from one that lists every value.
	anyDay, anyWeekday bool
	every              time.Duration // of @every; 0 otherwise
	zone               *time.Location
}

type bounds struct {
	name     string
	min, max int
	names    []string // names[i] means min+i
}

var (
	minutes  = bounds{name: "minute", min: 0, max: 59}
	hours    = bounds{name: "hour", min: 0, max: 23}
	days     = bounds{name: "day of month", min: 1, max: 31}
	months   = bounds{name: "month", min: 1, max: 12, names: strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")}
	weekdays = bounds{name: "day of week", min: 0, max: 6, names: strings.Fields("sun mon tue wed thu fri sat")}
)

var descriptors = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// Parse reads a schedule. Its error says which field is wrong and what would be accepted.
func Parse(text string) (*Schedule, error) {
	s := &Schedule{}
	rest := text
	if strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=") {
		setting, after, _ := strings.Cut(text, " ")
		_, name, _ := strings.Cut(setting, "=")
		zone, err := time.LoadLocation(name)
		if err != nil {
			return nil, fmt.Errorf("provided bad location %s: %w", name, err)
		}
		s.zone, rest = zone, after
	}
	rest = strings.TrimSpace(rest)
	switch {
	case rest == "":
		return nil, fmt.Errorf("empty spec string")
	case strings.HasPrefix(rest, "@"):
		return s, s.descriptor(rest)
	}
	return s, s.fields(rest)
}

func (s *Schedule) descriptor(text string) error {
	if fields, ok := descriptors[text]; ok {
		return s.fields(fields)
	}
	if after, ok := strings.CutPrefix(text, "@every "); ok {
		d, err := time.ParseDuration(after)
		if err != nil {
			return fmt.Errorf("failed to parse duration %s: %w", text, err)
		}
		// Whole seconds, at least one: a schedule is not a stopwatch.
		s.every = max(d.Truncate(time.Second), time.Second)
		return nil
	}
	return fmt.Errorf("unrecognized descriptor: %s", text)
}

func (s *Schedule) fields(text string) error {
	parts := strings.Fields(text)
	if len(parts) != 5 {
		return fmt.Errorf("expected exactly 5 fields, found %d: %v", len(parts), parts)
	}
	var err error
	read := func(i int, b bounds, set *uint64) (star bool) {
		if err == nil {
			*set, star, err = parseField(parts[i], b)
		}
		return star
	}
	read(0, minutes, &s.minute)
	read(1, hours, &s.hour)
	s.anyDay = read(2, days, &s.day)
	read(3, months, &s.month)
	s.anyWeekday = read(4, weekdays, &s.weekday)
	return err
}

// parseField reads a list of ranges; star says that it was "*" in steps of one.
func parseField(text string, b bounds) (set uint64, star bool, err error) {
	for item := range strings.SplitSeq(text, ",") {
		if item == "" {
			continue
		}
		one, any, err := parseRange(item, b)
		if err != nil {
			return 0, false, err
		}
		set |= one
		star = star || any
	}
	if set == 0 {
		return 0, false, fmt.Errorf("the %s field %q is empty", b.name, text)
	}
	return set, star, nil
}

func parseRange(text string, b bounds) (set uint64, star bool, err error) {
	span, stepText, stepped := strings.Cut(text, "/")
	lowText, highText, ranged := strings.Cut(span, "-")
	low, high, step := b.min, b.max, 1
	if span == "*" || span == "?" {
		star = true
	} else {
		if low, err = parseValue(lowText, b); err != nil {
			return 0, false, err
		}
		switch {
		case ranged:
			if high, err = parseValue(highText, b); err != nil {
				return 0, false, err
			}
		case !stepped:
			high = low
		}
	}
	if stepped {
		if step, err = strconv.Atoi(stepText); err != nil || strings.HasPrefix(stepText, "+") || strings.HasPrefix(stepText, "-") {
			return 0, false, fmt.Errorf("failed to parse int from %s: %q is no step", text, stepText)
		}
		if step == 0 {
			return 0, false, fmt.Errorf("step of range should be a positive number: %s", text)
		}
		star = star && step == 1
	}
	switch {
	case low < b.min:
		return 0, false, fmt.Errorf("beginning of range (%d) below minimum (%d): %s", low, b.min, text)
	case high > b.max:
		return 0, false, fmt.Errorf("end of range (%d) above maximum (%d): %s", high, b.max, text)
	case low > high:
		return 0, false, fmt.Errorf("beginning of range (%d) beyond end of range (%d): %s", low, high, text)
	}
	for i := low; i <= high; i += min(step, 64) {
		set |= 1 << i
	}
	return set, star, nil
}

func parseValue(text string, b bounds) (int, error) {
	for i, name := range b.names {
		if strings.EqualFold(text, name) {
			return b.min + i, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || strings.HasPrefix(text, "+") {
		return 0, fmt.Errorf("failed to parse int from %s: it is no %s", text, b.name)
	}
	if n < 0 {
		return 0, fmt.Errorf("negative number (%d) not allowed: %s", n, text)
	}
	return n, nil
}

// searchYears bounds the search of Next: the rarest valid schedule, the 29th of February on a given weekday, comes back within 40 years.
const searchYears = 40

// Next is the first time after t at which the schedule fires, in t's zone, or the zero time if there is none (the 30th of February).
// A schedule without a zone of its own is read in t's.
func (s *Schedule) Next(t time.Time) time.Time {
	if s.every > 0 {
		return t.Add(s.every - time.Duration(t.Nanosecond())*time.Nanosecond)
	}
	zone := s.zone
	if zone == nil {
		zone = t.Location()
	}
	at := t.In(zone)
	at = at.Add(time.Minute - time.Duration(at.Second())*time.Second - time.Duration(at.Nanosecond()))
	for limit := at.Year() + searchYears; at.Year() <= limit; {
		switch {
		case s.month>>uint(at.Month())&1 == 0:
			at = time.Date(at.Year(), at.Month()+1, 1, 0, 0, 0, 0, zone)
		case !s.onDay(at):
			at = nextDay(at, zone)
		case s.hour>>uint(at.Hour())&1 == 0:
			at = at.Add(time.Hour - time.Duration(at.Minute())*time.Minute)
		case s.minute>>uint(at.Minute())&1 == 0:
			later := s.minute &^ (1<<(uint(at.Minute())+1) - 1)
			if later == 0 {
				at = at.Add(time.Hour - time.Duration(at.Minute())*time.Minute)
			} else {
				at = at.Add(time.Duration(bits.TrailingZeros64(later)-at.Minute()) * time.Minute)
			}
		default:
			return at.In(t.Location())
		}
	}
	return time.Time{}
}

// nextDay is the start of the next day, which is not midnight where daylight saving skips it.
func nextDay(at time.Time, zone *time.Location) time.Time {
	next := time.Date(at.Year(), at.Month(), at.Day()+1, 0, 0, 0, 0, zone)
	if next.Day() == at.Day() {
		next = next.Add(time.Hour)
	}
	return next
}

func (s *Schedule) onDay(at time.Time) bool {
	day := s.day>>uint(at.Day())&1 == 1
	weekday := s.weekday>>uint(at.Weekday())&1 == 1
	if s.anyDay || s.anyWeekday {
		return day && weekday
	}
	return day || weekday
}
