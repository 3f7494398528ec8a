#!/bin/sh
# CloudEvents SQL, as the Go and the Java SDK evaluate it. In Go the `%` of a pattern means only the character where the
# text has a `%` at that place: `subject LIKE '50%'` misses "50% off". And `_` matches a byte, so it misses "ä". In Java
# neither matches a line break. None of this is an error: the event is not delivered. Where texts may hold `%` or a line
# break, compare a part by `=`: `LEFT(subject, 2) = '50'`.
# Needs Java 17 or newer and Maven. Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
cat > go.mod <<'MODULE'
module finding

go 1.23

require (
	github.com/cloudevents/sdk-go/sql/v2 v2.16.2
	github.com/cloudevents/sdk-go/v2 v2.16.2
)
MODULE
cat > main.go <<'PROGRAM'
package main

import (
	"fmt"

	"github.com/cloudevents/sdk-go/sql/v2/parser"
	cloudevents "github.com/cloudevents/sdk-go/v2"
)

func main() {
	for _, c := range [][2]string{{"50 off", "50%"}, {"50% off", "50%"}, {"%", "%"}, {"a", "_"}, {"ä", "_"}, {"a\nb", "a%b"}} {
		event := cloudevents.NewEvent()
		event.SetSubject(c[0])
		filter, err := parser.Parse("subject LIKE '" + c[1] + "'")
		if err != nil {
			panic(err)
		}
		found, err := filter.Evaluate(event)
		fmt.Printf("%q LIKE '%s' %v %v\n", c[0], c[1], found, err)
	}
}
PROGRAM
cat > pom.xml <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>finding</groupId><artifactId>finding</artifactId><version>1</version><dependencies>
<dependency><groupId>io.cloudevents</groupId><artifactId>cloudevents-sql</artifactId><version>4.0.1</version></dependency>
<dependency><groupId>io.cloudevents</groupId><artifactId>cloudevents-core</artifactId><version>4.0.1</version></dependency>
</dependencies></project>
POM
cat > Main.java <<'PROGRAM'
import io.cloudevents.core.builder.CloudEventBuilder;
import io.cloudevents.sql.EvaluationRuntime;
import io.cloudevents.sql.Parser;
import java.net.URI;

public class Main {
  public static void main(String[] arguments) {
    String[][] cases = {{"50 off", "50%"}, {"50% off", "50%"}, {"%", "%"}, {"a", "_"}, {"ä", "_"}, {"a\nb", "a%b"}};
    for (String[] c : cases) {
      var event = CloudEventBuilder.v1().withId("1").withSource(URI.create("/s")).withType("t").withSubject(c[0]).build();
      var found = Parser.parseDefault("subject LIKE '" + c[1] + "'").evaluate(EvaluationRuntime.getDefault(), event);
      System.out.println('"' + c[0].replace("\n", "\\n") + "\" LIKE '" + c[1] + "' " + found.value() + " " + found.causes());
    }
  }
}
PROGRAM
go mod tidy > tidy.log 2>&1 || { cat tidy.log; exit 1; }
go run . > go.txt
mvn -q dependency:copy-dependencies -DoutputDirectory=lib > maven.log 2>&1 || { cat maven.log; exit 1; }
java -Dfile.encoding=UTF-8 -Dstdout.encoding=UTF-8 -cp 'lib/*' Main.java > java.txt
echo "Go, sdk-go/sql 2.16.2:" && cat go.txt
echo "Java, cloudevents-sql 4.0.1:" && cat java.txt
[ "$(awk '{print $(NF-1)}' go.txt | xargs)" = "true false true true false true" ]
[ "$(awk '{print $(NF-1)}' java.txt | xargs)" = "true true true true true false" ]
