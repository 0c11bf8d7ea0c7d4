// Go-MySQL-Driver: failover HOST:PORT PASSWORD MILLISECONDS. It knows no strings of several hosts, so it needs a proxy.
package main

import (
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"time"

	_ "github.com/go-sql-driver/mysql"
)

func main() {
	milliseconds, _ := strconv.Atoi(os.Args[3])
	dsn := "app:" + os.Args[2] + "@tcp(" + os.Args[1] + ")/d?timeout=1s&readTimeout=2s&rejectReadOnly=true"
	database, err := sql.Open("mysql", dsn)
	if err != nil {
		panic(err)
	}
	var last time.Time
	var gap time.Duration
	errors, first := 0, ""
	end := time.Now().Add(time.Duration(milliseconds) * time.Millisecond)
	for time.Now().Before(end) {
		if _, err := database.Exec("INSERT INTO d.t (k) VALUES (1)"); err != nil {
			errors++
			if first == "" {
				first = err.Error()
			}
		} else {
			now := time.Now()
			if !last.IsZero() && now.Sub(last) > gap {
				gap = now.Sub(last)
			}
			last = now
		}
		time.Sleep(20 * time.Millisecond)
	}
	shown := strconv.FormatInt(gap.Milliseconds(), 10)
	if end.Sub(last) > 2*time.Second {
		// Without a commit until the end, it has not come back.
		shown = "never"
	}
	fmt.Printf("gap_ms=%s errors=%d first=%s\n", shown, errors, first)
}
